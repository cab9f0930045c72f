"""Kernels: compiled in one piece, list scheduling really without reference counts, kept and found again anywhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numba import njit

from planner_service.compiling import WITHOUT_COUNTS, bare_kernel, inlined, kernel
from planner_service.kernel_cache import CACHE, PACKAGE
from planner_service.kernel_target import host_levels
from planner_service.search import decoders
from planner_service.warmup import compile_kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner_service.domain.graph import Ints

ELSEWHERE = Path(__file__).with_name("kernels_elsewhere.py")
ONE_KERNEL = """
import logging, sys
from planner_service.compiling import inlined, kernel

@inlined
def part(value):
    return value + 1

@kernel
def whole(value):
    return part(value)

logging.basicConfig(format="%(message)s")
print(whole(1), *whole.stats.cache_hits.values(), *(f"missed {n}" for n in whole.stats.cache_misses.values()))
"""
"""Prints what the kernel returns, and whether its code was found."""


@inlined
def _double(value: int) -> int:
    return 2 * value


@kernel
def _doubled(values: Ints) -> int:
    total = 0
    for value in values:
        total += _double(value)
    return total


@bare_kernel
def _total(values: tuple[Ints, int]) -> int:
    total = values[1]
    for i in range(values[0].shape[0]):
        total += values[0][i]
    return total


def test_kernels_return_what_the_functions_would() -> None:
    assert _double(4) == 8
    assert _doubled(np.arange(5)) == 20
    assert _total((np.arange(5), 1)) == 11


def test_a_bare_kernel_counts_no_references() -> None:
    """As list scheduling, which is one."""
    texts = []
    for options in (WITHOUT_COUNTS, {}):
        fresh = njit(**options)(_total.py_func)
        fresh((np.arange(5), 1))
        texts.append("".join(fresh.inspect_llvm().values()))
    bare, plain = texts
    assert "NRT_decref" in plain
    assert "NRT_" not in bare
    assert decoders._fill.targetoptions == _total.targetoptions


def test_every_kernel_is_compiled_here() -> None:
    """One that came from numba itself would be missing from the digest."""
    others = [path for path in PACKAGE.rglob("*.py") if "njit" in path.read_text() and path.name != "compiling.py"]
    assert others == []


def run(*arguments: str | Path, before: Sequence[str] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own."""
    return subprocess.run(
        [*before, sys.executable, *map(str, arguments)],
        cwd=PACKAGE.parent, env=os.environ | environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def elsewhere(cpu: str, *, before: Sequence[str] = ()) -> dict[str, Any]:
    """What a planner's process does whose CPU has another name and no AVX-512."""
    ran = run(ELSEWHERE, cpu, before=before)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def read_only() -> list[str]:
    """What runs a command on this machine's files, none of which it can write: temporary ones neither."""
    if not shutil.which("unshare"):
        pytest.skip("no unshare on this machine")
    alone = ["unshare", "--mount", *(["--map-root-user"] if os.getuid() else [])]
    mount = "mount --bind / /mnt && mount -o remount,bind,ro /mnt && mount --rbind /dev /mnt/dev"
    mount += " && mount --rbind /proc /mnt/proc && exec chroot /mnt "
    command = [*alone, "sh", "-c", mount + 'env --chdir "$0" "$@"', str(PACKAGE.parent)]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"this machine lets nobody make mounts of their own: {tried.stderr}")
    return command


def test_another_cpu_loads_what_was_compiled_here_and_plans_the_same() -> None:
    """As where an image was built on one type of CPU, and runs on others; on a disk that is read-only, too."""
    compile_kernels()
    here, there = elsewhere("znver4", before=read_only()), elsewhere("skylake")
    assert here == there
    assert here["folder"] == CACHE.name
    assert here["were_compiled"]
    assert here["compiled"] == []


def test_code_is_found_again_and_a_callee_that_changed_is_seen(tmp_path: Path) -> None:
    script, cache = tmp_path / "script.py", str(tmp_path / "cache")
    script.write_text(ONE_KERNEL)
    assert run(script, NUMBA_CACHE_DIR=cache).stdout == "2 missed 1\n"
    os.utime(script, ns=(1, 1))
    assert run(script, NUMBA_CACHE_DIR=cache).stdout == "2 1\n"
    script.write_text(ONE_KERNEL.replace("value + 1", "value + 2"))
    assert run(script, NUMBA_CACHE_DIR=cache).stdout == "3 missed 1\n"


def test_code_that_cannot_be_kept_is_used_and_said(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ONE_KERNEL)
    ran = run(script, before=read_only(), NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert ran.stdout == "2 missed 1\n"
    assert f"machine code of kernels is used, and not kept in {tmp_path}" in ran.stderr


SUM = """
import numpy as np
from planner_service.compiling import kernel

@kernel
def total(values):
    found = 0.0
    for i in range(values.shape[0]):
        found += values[i] * 3.0
    return found

total(np.ones(8))
print(*{line.split()[0] for text in total.inspect_asm().values() for line in text.splitlines() if line.strip()})
"""
"""Prints every instruction of a kernel's code."""


@pytest.mark.skipif("x86-64-v3" not in host_levels(), reason="needs a CPU with AVX2")
def test_code_of_a_level_has_no_instruction_above_it(tmp_path: Path) -> None:
    """As much as this CPU, which compiles it, can do: a CPU of the level would end the process."""
    script = tmp_path / "script.py"
    script.write_text(SUM)
    instructions = {
        cpu: set(run(script, NUMBA_CACHE_DIR=str(tmp_path / "cache"), NUMBA_CPU_NAME=cpu).stdout.split())
        for cpu in ("x86-64-v3", "x86-64-v2")
    }
    assert {"mulsd", "vmulsd"} & instructions["x86-64-v2"] == {"mulsd"}
    assert {"mulsd", "vmulsd"} & instructions["x86-64-v3"] == {"vmulsd"}
    assert [each for each in instructions["x86-64-v2"] if each.startswith("v")] == []
    assert {folder.name.partition("x86-64")[2] for folder in (tmp_path / "cache").iterdir()} == {"-v2", "-v3"}
