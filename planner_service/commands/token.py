"""``dip token``: makes a bearer token, and the entry of the access file that lets it in."""

from __future__ import annotations

import json
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from planner_service.commands.failure import CommandError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

DESCRIPTION = """Makes a bearer token and prints the entry of the planner's access file (DIP_ACCESS_FILE) that lets it
in; the entry holds the token's SHA-256, never the token. The token goes into a file that its user's DIP_TOKEN_FILE
names; without --out it is printed on standard error, so that standard output holds the entry alone."""

TOKEN_MODE = 0o600


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("token", help="make a token for trainers or people", description=DESCRIPTION)
    parser.add_argument("--name", required=True, help="what the planner calls whoever brings it")
    parser.add_argument(
        "--role",
        action="append",
        metavar="ROLE",
        help="trainer, viewer or operator; may be given several times (default: trainer)",
    )
    parser.add_argument(
        "--job",
        action="append",
        required=True,
        metavar="JOB",
        help="a job that it may touch, or the beginning of some with a * at the end; may be given several times",
    )
    parser.add_argument("--out", metavar="FILE", help="a new file for the token, which only its owner can read")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Make the token."""
    from planner_service.access.tokens import TOKEN_BYTES, token_digest

    token = secrets.token_urlsafe(TOKEN_BYTES)
    entry = _entry(arguments.name, token_digest(token), arguments.role or ["trainer"], arguments.job)
    if arguments.out is None:
        sys.stderr.write(f"{token}\n")
    else:
        _write_new(Path(arguments.out), token)
    sys.stdout.write(entry)
    return 0


def _entry(name: str, digest: bytes, roles: Sequence[str], jobs: Sequence[str]) -> str:
    """Return the entry as TOML, which the planner would take; JSON's texts and lists are TOML's."""
    from planner_service.access.entries import parse_entries
    from planner_service.access.errors import AccessError

    held = {"name": name, "sha256": digest.hex(), "roles": list(roles), "jobs": list(jobs)}
    entry = "[[tokens]]\n" + "".join(f"{field} = {json.dumps(value)}\n" for field, value in held.items())
    try:
        parse_entries(entry.encode(), "the entry")
    except AccessError as error:
        raise CommandError(str(error)) from error
    return entry


def _write_new(path: Path, token: str) -> None:
    """Write a file that was not there: a token that is overwritten is one that somebody may still use."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, TOKEN_MODE)
        with open(descriptor, "w", encoding="ascii") as file:
            os.fchmod(descriptor, TOKEN_MODE)  # whatever the process's mask
            file.write(f"{token}\n")
    except FileExistsError:
        raise CommandError(f"{path} is there already: name a new file, or remove it first") from None
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error
