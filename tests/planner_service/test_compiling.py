"""Kernels: compiled in one piece, and list scheduling really without reference counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from cases import documents, job, request
from dip.partition import default_partition
from random_work import Instance, random_guide

from planner_service.compiling import CACHE, PACKAGE, bare_kernel, cache_folder, inlined, kernel
from planner_service.search import decoders

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

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


def test_list_scheduling_counts_no_references() -> None:
    asked = request(job(split_backward=True), documents(3))
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    graph = Instance.of(asked).graph()
    assert decoders.decode(graph, random_guide(graph, 0)).makespan_us > 0
    (assembly,) = decoders._fill.inspect_asm().values()
    assert "NRT_incref" not in assembly
    assert "NRT_decref" not in assembly


def test_the_cache_folder_follows_the_source_of_every_kernel(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "search").mkdir(parents=True)
    kernels, plain = package / "search" / "decoders.py", package / "cli.py"
    kernels.write_text("from planner_service.compiling import kernel\n")
    plain.write_text("print()\n")
    first = cache_folder(package)
    plain.write_text("print(1)\n")
    assert cache_folder(package) == first
    kernels.write_text("from planner_service.compiling import kernel, inlined\n")
    assert cache_folder(package) != first
    assert cache_folder(package).parent == package / "__pycache__"


def test_the_cache_can_be_put_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert cache_folder() == tmp_path / CACHE.name


def test_every_kernel_is_compiled_here() -> None:
    """One that came from numba itself would be missing from the digest."""
    others = [path for path in PACKAGE.rglob("*.py") if "njit" in path.read_text() and path.name != "compiling.py"]
    assert others == []
