"""Shows that processes are told apart: whose children they are, what they run, and that those that ended are none."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks import procfs


def test_children_live_and_run_what_is_asked_for() -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "some.module"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        assert child.pid in procfs.children(os.getpid())
        assert procfs.children(child.pid) == []
        while child.pid not in procfs.children(os.getpid(), module="some.module"):
            pass  # forked, and not yet running it
        assert child.pid not in procfs.children(os.getpid(), module="some")
        child.kill()
        while child.pid in procfs.children(os.getpid()):
            pass  # until it is a zombie


def test_memory_and_processor_time_grow_with_what_is_used() -> None:
    mib, cpu_s = procfs.resident_mib(os.getpid()), procfs.cpu_s(os.getpid())
    held = b"\1" * (64 * 2**20)
    assert procfs.resident_mib(os.getpid()) - mib > 32
    while procfs.cpu_s(os.getpid()) < cpu_s + 0.02:
        sum(held[:100_000])
