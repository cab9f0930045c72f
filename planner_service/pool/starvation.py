"""How long a process was ready to run and was not let: what idle priority costs it beside a busy training."""

from __future__ import annotations

import contextlib
from pathlib import Path


def starved_s(pid: int) -> float:
    """Seconds that a process has waited for a core since it started, in the thread that waited longest.

    Read from ``/proc/<pid>/task/*/schedstat``, whose second number is the time on a run queue in nanoseconds. 0 where
    the kernel does not say.
    """
    waited_ns = 0
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, IndexError, ValueError):
                waited_ns = max(waited_ns, int((thread / "schedstat").read_text().split()[1]))
    return waited_ns / 1e9
