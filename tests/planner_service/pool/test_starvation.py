"""Shows that time spent waiting for a core is known, and told from time spent asleep."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from planner_service.pool.starvation import starved_s

if TYPE_CHECKING:
    from pathlib import Path

SPIN = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\nwhile True: pass"


def test_processes_that_share_a_core_wait_for_it() -> None:
    core = str(min(os.sched_getaffinity(0)))
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN, core], stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for one in spinning:
            assert one.stdout is not None
            one.stdout.readline()
        before = [starved_s(one.pid) for one in spinning]
        enough = threading.Event()
        while not enough.wait(0.02):
            if all(starved_s(one.pid) > was + 0.05 for one, was in zip(spinning, before, strict=True)):
                enough.set()
    finally:
        for one in spinning:
            one.kill()
            one.wait()
            assert one.stdout is not None
            one.stdout.close()


def test_process_that_is_gone_has_not_waited(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert starved_s(gone.pid) == 0
