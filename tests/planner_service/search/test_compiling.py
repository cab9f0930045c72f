"""Kernels: compiled in one piece, and list scheduling really without reference counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from cases import documents, job, request
from dip.partition import default_partition
from random_work import Instance, random_guide

from planner_service.search import decoders
from planner_service.search.compiling import bare_kernel, inlined, kernel

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


def test_list_scheduling_counts_no_references() -> None:
    asked = request(job(split_backward=True), documents(3))
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    graph = Instance.of(asked).graph()
    assert decoders.decode(graph, random_guide(graph, 0)).makespan_us > 0
    (assembly,) = decoders._fill.inspect_asm().values()
    assert "NRT_incref" not in assembly
    assert "NRT_decref" not in assembly
