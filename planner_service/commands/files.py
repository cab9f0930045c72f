"""Reads messages from JSON files and writes them, whole or not at all."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from google.protobuf import json_format

from planner_service.commands.failure import CommandError
from planner_service.commands.shape import shape_faults

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

STANDARD_STREAM = "-"
"""The path that means standard input, or standard output."""

SHOWN_FAULTS = 50

M = TypeVar("M", bound="Message")


def read_text(path: str) -> str:
    """Read a text file.

    Raises
    ------
    CommandError
        Where there is no such file, or it holds something else; the message names the file.
    """
    try:
        return sys.stdin.read() if path == STANDARD_STREAM else Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def read_json(path: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises
    ------
    CommandError
        Where there is no such file, or it holds something else; the message names the file.
    """
    text = read_text(path)
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates)
    except ValueError as error:
        raise CommandError(f"{path} is not JSON: {error}") from error
    except RecursionError as error:
        raise CommandError(f"{path} is not a message: it is nested too deeply") from error
    if not isinstance(value, dict):
        raise CommandError(f"{path} holds a JSON {type(value).__name__}, must be an object")
    return value


def read_toml(path: str) -> dict[str, Any]:
    """Read a TOML file.

    Raises
    ------
    CommandError
        Where there is no such file, or it holds something else; the message names the file.
    """
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise CommandError(f"{path} is not TOML: {error}") from error
    except RecursionError as error:
        raise CommandError(f"{path} is not TOML that can be read: it is nested too deeply") from error


def as_message(value: dict[str, Any], message: M, source: str) -> M:
    """Fill a message from its JSON mapping; field names may be those of the contract or in camelCase.

    Raises
    ------
    CommandError
        Where the value has unknown fields or wrong types; the message names every one.
    """
    faults = list(shape_faults(value, cast("Descriptor", message.DESCRIPTOR)))
    if faults:
        listed = "\n".join(f"  {fault}" for fault in faults[:SHOWN_FAULTS])
        more = f"\n  and {len(faults) - SHOWN_FAULTS} more" if len(faults) > SHOWN_FAULTS else ""
        raise CommandError(f"{source} is no {message.DESCRIPTOR.name}:\n{listed}{more}")
    try:
        return json_format.ParseDict(value, message)
    except json_format.ParseError as error:
        raise CommandError(f"{source} is no {message.DESCRIPTOR.name}: {error}") from error


def read_message(path: str, message: M) -> M:
    """Fill a message from a JSON file.

    Raises
    ------
    CommandError
        Where the file cannot be read or holds something else.
    """
    return as_message(read_json(path), message, path)


def message_text(message: Message) -> str:
    """JSON of a message, with the contract's field names."""
    return json_format.MessageToJson(message, preserving_proto_field_name=True, indent=1) + "\n"


def write_text(path: str, text: str) -> None:
    """Write a file so that readers see all of it or the one before it; ``-`` is standard output.

    Raises
    ------
    CommandError
        Where it cannot be written.
    """
    if path == STANDARD_STREAM:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        if Path(path).exists() and not Path(path).is_file():
            Path(path).write_text(text, encoding="utf-8")  # a device or a pipe: there is nothing to replace
        else:
            _replace(Path(path).resolve(), text)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from error


def _replace(target: Path, text: str) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(_mode_of(target))
        Path(temporary).replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise


def _mode_of(target: Path) -> int:
    """Permissions of the file that is replaced, or those that a new file gets."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} is there twice in one object")
    return value
