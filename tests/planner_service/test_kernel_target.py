"""Shows that kernels are for CPUs that this machine has, whatever it is and whatever was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from llvmlite import binding

from planner_service import kernel_target as targets
from planner_service.kernel_target import KernelTarget, host_flags, host_levels, kernel_target

if TYPE_CHECKING:
    from pathlib import Path

V2_FLAGS = "fpu cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"
V3_FLAGS = f"{V2_FLAGS} abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"
LLVM_NAMES = {"abm": "lzcnt", "bmi1": "bmi", "lahf_lm": "sahf", "pni": "sse3", "sse4_1": "sse4.1", "sse4_2": "sse4.2"}
"""What LLVM calls differently from Linux."""


@pytest.fixture(autouse=True)
def nothing_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(targets.CPU_NAME, raising=False)
    monkeypatch.delenv(targets.CPU_FEATURES, raising=False)


def set_machine(monkeypatch: pytest.MonkeyPatch, machine: str, flags: str) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(targets, "host_flags", lambda: frozenset(flags.split()))


@pytest.mark.parametrize(
    ("machine", "flags", "level"),
    [
        ("x86_64", f"{V3_FLAGS} avx512f", "x86-64-v2"),
        ("x86_64", V2_FLAGS, "x86-64-v2"),
        ("x86_64", V2_FLAGS.replace("popcnt ", ""), "x86-64"),
        ("x86_64", "fpu sse2", "x86-64"),
        ("x86_64", "", "x86-64"),
        ("aarch64", "", "generic"),
    ],
)
def test_all_cpus_take_one_level_but_those_that_lack_it(
    monkeypatch: pytest.MonkeyPatch, machine: str, flags: str, level: str
) -> None:
    set_machine(monkeypatch, machine, flags)
    assert kernel_target() == KernelTarget(cpu=level)


def test_levels_are_told_apart_by_every_instruction_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    for flags, levels in ((V3_FLAGS, 3), (V3_FLAGS.replace("movbe ", ""), 2), (V2_FLAGS, 2), ("sse2", 1)):
        set_machine(monkeypatch, "x86_64", flags)
        assert host_levels() == ["x86-64-v3", "x86-64-v2", "x86-64"][-levels:]


def test_a_level_that_the_cpu_lacks_is_never_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its code would end the process with SIGILL."""
    set_machine(monkeypatch, "x86_64", V2_FLAGS)
    monkeypatch.setenv(targets.CPU_NAME, "x86-64-v3")
    assert kernel_target() == KernelTarget(cpu="x86-64-v2")
    assert "NUMBA_CPU_NAME is x86-64-v3, and this CPU lacks instructions of it" in caplog.text


def test_another_target_can_be_chosen_as_with_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    set_machine(monkeypatch, "x86_64", V3_FLAGS)
    monkeypatch.setenv(targets.CPU_NAME, "x86-64-v3")
    assert kernel_target().label == "x86-64-v3"
    monkeypatch.setenv(targets.CPU_NAME, "znver4")
    plain = kernel_target()
    monkeypatch.setenv(targets.CPU_FEATURES, "-avx512f")
    assert kernel_target() == KernelTarget(cpu="znver4", features="-avx512f")
    assert len({plain.label, kernel_target().label}) == 2


def test_flags_are_those_that_all_cpus_share(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: avx avx2 fma\nprocessor\t: 1\nflags\t\t: avx fma\n")
    assert host_flags(cpuinfo) == {"avx", "fma"}
    assert host_flags(tmp_path / "none") == frozenset()


def test_llvm_sees_every_instruction_of_the_level_here() -> None:
    """What Linux says of this CPU decides, and LLVM makes the code: they have to agree."""
    seen = binding.get_host_cpu_features()
    needed = targets.levels_of(targets.platform.machine())[host_levels()[0]]
    assert [flag for flag in needed if not seen.get(LLVM_NAMES.get(flag, flag))] == []
