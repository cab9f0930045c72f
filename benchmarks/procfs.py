"""What Linux tells of a process: its memory, its processor time, its children."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STATE, _PARENT, _USER_TICKS, _SYSTEM_TICKS = 0, 1, 11, 12  # of what follows the name in /proc/<pid>/stat


def resident_mib(pid: int) -> float:
    """Memory that a process holds, its children's not included."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has used so far, its children's not included."""
    fields = _stat(Path(f"/proc/{pid}"))
    return (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / _TICKS_PER_S


def children(pid: int, *, module: str | None = None) -> list[int]:
    """Process ids of a process's children that live: those alone that run a module, where one is given."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            fields = _stat(entry)
            runs = module is None or module.encode() in (entry / "cmdline").read_bytes().split(b"\0")
            if int(fields[_PARENT]) == pid and fields[_STATE] != "Z" and runs:
                found.append(int(entry.name))
    return found


def _stat(entry: Path) -> list[str]:
    return (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
