"""The access file: who may call, as TOML.

::

    [[tokens]]
    name = "trainers-of-team-a"
    sha256 = "9f86d0..."             # or a list, old and new, while a token is rotated
    roles = ["trainer"]              # trainer, viewer, operator
    jobs = ["team-a-*"]              # names, or beginnings that end with *

A file that says anything else is wrong as a whole: an entry that is half understood would let in too many, or nobody.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from dip.validation.names import JOB_ID_RULE, is_job_id

from planner_service.access.caller import Role
from planner_service.access.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Iterator

DIGEST_BYTES: Final = hashlib.sha256().digest_size
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
NAME_RULE: Final = "1 to 63 letters, digits, dots, dashes and underscores, the first a letter or digit"
JOB_RULE: Final = f"names of jobs ({JOB_ID_RULE}), or their beginnings with a * at the end"

_FIELDS: Final = ("name", "sha256", "roles", "jobs")
_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")
_OF_NOTHING: Final = hashlib.sha256(b"").digest()
_MOST_DIGESTS: Final = 8
_SHOWN_CHARACTERS: Final = 60
_SHOWN_FAULTS: Final = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenEntry:
    """Who brings one of a few tokens.

    Parameters
    ----------
    name
        For people.
    digests
        SHA-256 of each token that stands for it.
    roles, jobs
        As of `Caller`.
    """

    name: str
    digests: tuple[bytes, ...] = field(repr=False)
    roles: frozenset[Role]
    jobs: tuple[str, ...]


def parse_entries(content: bytes, source: str) -> tuple[TokenEntry, ...]:
    """Read an access file.

    Parameters
    ----------
    content
        The file's bytes.
    source
        What the message of an error calls it.

    Raises
    ------
    AccessError
        Naming the file, the entry, the field, what it holds (unless that may be a secret) and what is allowed.
    """
    try:
        held = tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise AccessError(f"{source}: is no UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise AccessError(f"{source}: is no TOML: {error}") from None
    except RecursionError:
        raise AccessError(f"{source}: is nested too deeply") from None
    faults = list(_file_faults(held))
    if faults:
        more = f"; and {len(faults) - _SHOWN_FAULTS} more" if len(faults) > _SHOWN_FAULTS else ""
        raise AccessError(f"{source}: {'; '.join(faults[:_SHOWN_FAULTS])}{more}")
    return tuple(_entry(table) for table in held["tokens"])


def _entry(table: dict[str, Any]) -> TokenEntry:
    return TokenEntry(
        name=table["name"],
        digests=tuple(bytes.fromhex(digest) for digest in _listed(table["sha256"])),
        roles=frozenset(Role(role) for role in table["roles"]),
        jobs=tuple(table["jobs"]),
    )


def _file_faults(held: dict[str, Any]) -> Iterator[str]:
    for key in held.keys() - {"tokens"}:
        yield f"{_shown(key)} is not known; allowed are [[tokens]] tables alone"
    tables = held.get("tokens")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        yield "tokens: must be [[tokens]] tables, one at least (without any, nobody could call)"
        return
    faulty = False
    for number, table in enumerate(tables):
        for fault in _table_faults(table):
            faulty = True
            yield f"{_where(number, table)}: {fault}"
    if not faulty:
        yield from _repeated(tables)


def _table_faults(table: dict[str, Any]) -> Iterator[str]:
    for key in table.keys() - set(_FIELDS):
        yield f"{_shown(key)} is not known; allowed are {', '.join(_FIELDS)}"
    name, roles, jobs = table.get("name"), table.get("roles"), table.get("jobs")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        yield f"name: holds {_shown(name)}, must be {NAME_RULE}"
    digests = _listed(table.get("sha256"))
    if not 1 <= len(digests) <= _MOST_DIGESTS or not all(_is_hex(digest) for digest in digests):
        # Not shown: people put the token itself there.
        allowed = f"64 hex digits, the token's SHA-256, or a list of 1 to {_MOST_DIGESTS} such"
        yield f"sha256: must be {allowed}; dip token makes them"
    elif any(bytes.fromhex(digest) == _OF_NOTHING for digest in digests):
        yield "sha256: is that of an empty token; dip token makes a good one"
    if not _is_list_of_texts(roles) or not set(roles) <= set(Role):
        yield f"roles: holds {_shown(roles)}, must be a list of {', '.join(Role)}, one at least"
    if not _is_list_of_texts(jobs) or not all(_is_job(job) for job in jobs):
        yield f"jobs: holds {_shown(jobs)}, must be a list of {JOB_RULE}, one at least; all jobs are ['*']"


def _repeated(tables: list[dict[str, Any]]) -> Iterator[str]:
    names = Counter(table["name"] for table in tables)
    yield from (f"tokens named {name!r}: there are {count}, must be one" for name, count in names.items() if count > 1)
    owners: dict[str, str] = {}
    for number, table in enumerate(tables):
        for digest in map(str.lower, _listed(table["sha256"])):
            if digest in owners:
                yield f"{_where(number, table)}: sha256: is that of {owners[digest]} too; a token stands for one entry"
            owners.setdefault(digest, _where(number, table))


def _where(number: int, table: dict[str, Any]) -> str:
    name = table.get("name")
    return f"tokens[{number}]" + (f" ({name})" if isinstance(name, str) and NAME.fullmatch(name) else "")


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_job(pattern: str) -> bool:
    return pattern == "*" or is_job_id(pattern.removesuffix("*"))


def _is_hex(value: object) -> bool:
    return isinstance(value, str) and _HEX.fullmatch(value) is not None


def _is_list_of_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def _shown(value: object) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
