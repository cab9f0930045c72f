"""Which CPUs the machine code of kernels is for: a level of their architecture, not the one that compiles.

Code of a level runs on every CPU of that level or above, so that what was compiled in one place, such as an image, is
loaded in another. On x86-64 that is v2, which all servers have had since 2009 and numpy asks for as well: what code for
v3 or for the CPU here alone would gain, `python -m benchmarks.kernel_targets` measures, and it is nothing. A CPU that
lacks v2 is met with less, so that none is given an instruction that it does not know.

`NUMBA_CPU_NAME` and `NUMBA_CPU_FEATURES` choose otherwise, as everywhere with numba.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger(__name__)

CPU_NAME: Final = "NUMBA_CPU_NAME"
CPU_FEATURES: Final = "NUMBA_CPU_FEATURES"

_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"})
_V3 = _V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}

X86_LEVELS: Final[Mapping[str, frozenset[str]]] = {"x86-64-v3": _V3, "x86-64-v2": _V2, "x86-64": frozenset()}
"""Levels of the x86-64 psABI, highest first, and what each asks for, as Linux calls it in /proc/cpuinfo."""

_BASELINE: Final[Mapping[str, frozenset[str]]] = {"generic": frozenset()}
"""Other architectures: what every CPU of them has, in LLVM's words; on 64-bit Arm that is ARMv8 with NEON."""

HIGHEST_TAKEN: Final = "x86-64-v2"
"""What x86-64 CPUs above it take, too."""

_X86_MACHINES = frozenset({"x86_64", "AMD64"})


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelTarget:
    """What LLVM generates code for.

    Parameters
    ----------
    cpu
        A level or a CPU, in LLVM's words.
    features
        What is added to it and taken from it, as in ``+avx2,-sha``.
    """

    cpu: str
    features: str = ""

    @property
    def label(self) -> str:
        """Name for files of code for this target."""
        if not self.features:
            return self.cpu
        return f"{self.cpu}-{hashlib.sha256(self.features.encode()).hexdigest()[:8]}"


def levels_of(machine: str) -> Mapping[str, frozenset[str]]:
    """Levels of an architecture, highest first, each with the flags that a CPU of it has."""
    return X86_LEVELS if machine in _X86_MACHINES else _BASELINE


def host_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """What the CPUs here can do, as far as the kernel, and a hypervisor below it, let programs use it.

    Empty where the kernel does not say, which leaves the lowest level.
    """
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    each = [frozenset(line.partition(":")[2].split()) for line in lines if line.startswith("flags")]
    return frozenset.intersection(*each) if each else frozenset()


def host_levels() -> list[str]:
    """Levels that the CPUs here have, highest first."""
    flags = host_flags()
    return [level for level, needed in levels_of(platform.machine()).items() if needed <= flags]


def own_level() -> str:
    """Level that the CPUs here take where nobody chooses."""
    levels = host_levels()
    return HIGHEST_TAKEN if HIGHEST_TAKEN in levels else levels[0]


def kernel_target() -> KernelTarget:
    """What kernels of this process are compiled for, and which of those that are kept it loads.

    A level that these CPUs lack, asked for by name, is answered with their own: code of it would kill the process.
    """
    cpu, features = os.environ.get(CPU_NAME) or own_level(), os.environ.get(CPU_FEATURES) or ""
    if cpu in levels_of(platform.machine()) and cpu not in host_levels():
        own = own_level()
        _log.warning("%s is %s, and this CPU lacks instructions of it: kernels are those for %s", CPU_NAME, cpu, own)
        return KernelTarget(cpu=own)
    return KernelTarget(cpu=cpu, features=features)
