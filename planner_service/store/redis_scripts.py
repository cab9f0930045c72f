"""The scripts of the Redis store, each one atomic step; `lua/` holds their text, docs/redis.md describes the keys."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """One script.

    Parameters
    ----------
    name
        What errors call it.
    source
        Its whole text.
    digest
        The hexadecimal SHA-1 of the source, by which a server that has seen it runs it.
    """

    name: str
    source: bytes
    digest: str


_READS: Final = "no-writes"
_NEEDS_ROOM: Final = ""
_ALWAYS: Final = "allow-oom"  # ends or frees what was accepted: has to work where memory is full


def _script(name: str, flags: str) -> Script:
    folder = files("planner_service.store") / "lua"
    shebang = f"#!lua flags={flags}\n" if flags else "#!lua\n"
    source = shebang + (folder / "prelude.lua").read_text() + (folder / f"{name}.lua").read_text()
    text = source.encode()
    return Script(name=name, source=text, digest=hashlib.sha1(text, usedforsecurity=False).hexdigest())


JOB: Final = _script("job", _READS)
JOBS: Final = _script("jobs", _READS)
PUT_NEW_JOB: Final = _script("put_job", _NEEDS_ROOM)
PUT_KNOWN_JOB: Final = _script("put_job", _ALWAYS)
ADD_BATCH: Final = _script("add_batch", _NEEDS_ROOM)
CLAIM: Final = _script("claim", _ALWAYS)
RENEW: Final = _script("renew", _ALWAYS)
RELEASE: Final = _script("release", _ALWAYS)
MAKE_ROOM: Final = _script("make_room", _ALWAYS)
SETTLE: Final = _script("settle", _ALWAYS)
ENTRY: Final = _script("entry", _READS)
NEXT_ANSWERS: Final = _script("next_answers", _READS)
ADD_REPORT: Final = _script("add_report", _NEEDS_ROOM)
REPORTS: Final = _script("reports", _READS)
RECENT: Final = _script("recent", _READS)
QUEUE: Final = _script("queue", _READS)
STANDING: Final = _script("standing", _READS)
PROGRESS: Final = _script("progress", _READS)
