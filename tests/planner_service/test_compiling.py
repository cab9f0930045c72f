"""Kernels: compiled in one piece, and list scheduling really without reference counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from planner_service.compiling import WITHOUT_COUNTS, bare_kernel, inlined, kernel
from planner_service.kernel_cache import PACKAGE
from planner_service.search import decoders

if TYPE_CHECKING:
    from planner_service.domain.graph import Ints


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
