"""Shows that layers recompute where an order does not fit its memory, and no layer that could store as well."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import corners
import pytest
from dip.costs import STORE
from dip.errors import CannotFitError
from dip.fallback import leanest_ways
from dip.job import Job
from dip.lowering import Phase, peak_bytes, time_order
from dip.work import Work, chunks_of

from planner_service.baselines.drafts import whole_parts
from planner_service.baselines.interleaved import interleaved_1f1b
from planner_service.baselines.latency_balanced import latency_balanced_partition
from planner_service.baselines.order_table import table_orders
from planner_service.baselines.recompute import fitting_choices

if TYPE_CHECKING:
    from dip.lowering import Task
    from dip.memory import Way
    from dip.planner.v1 import planner_pb2 as pb


def example(memory_bytes: int = 0, *, split: bool = False) -> tuple[Work, list[list[Task]]]:
    """Three modules' layers on four ranks, of several sizes; with split backwards weight halves wait a while."""
    request = corners.two_encoders()
    request.job.options.split_backward = split
    request.job.cluster.memory_bytes[:] = [memory_bytes] if memory_bytes else []
    job = Job.from_spec(request.job)
    chunks = chunks_of(job, latency_balanced_partition(request.job, request.batch))
    work = Work(job=job, forward_only=False, chunks=chunks, parts=whole_parts(job, request.batch))
    stage_of = [[chunk.rank for chunk in of_module] for of_module in work.chunks]
    orders = table_orders(work, stage_of, partial(interleaved_1f1b, stages_of_rank=1))
    return work, [_halved(order) for order in orders] if split else orders


def _halved(order: list[Task]) -> list[Task]:
    """Put each weight half behind the next input half."""
    halved: list[Task] = []
    left: list[Task] = []
    for phase, cell in order:
        halved.append((Phase.BACKWARD_INPUT if phase == Phase.BACKWARD else phase, cell))
        if phase == Phase.BACKWARD:
            halved += left
            left = [(Phase.BACKWARD_WEIGHT, cell)]
    return halved + left


def num_lean(way: Way) -> int:
    return sum(count for name, count in way if name != STORE)


def needs(*, split: bool) -> tuple[int, int]:
    """Peaks of all ranks together with all layers lean, and with all storing."""
    work, orders = example(split=split)
    store: list[Way] = [()] * work.num_cells
    return max(peak_bytes(work, orders, leanest_ways(work))), max(peak_bytes(work, orders, store))


def test_where_all_fits_nothing_recomputes() -> None:
    _, most = needs(split=False)
    work, orders = example(most)
    assert fitting_choices(work, orders) == [([()] * work.num_cells, orders)]
    assert fitting_choices(*example()) == [([()] * work.num_cells, orders)]


@pytest.mark.parametrize("lean_whole", [False, True])
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_no_lean_layer_could_store_as_well(share: float, split: bool, lean_whole: bool) -> None:
    least, most = needs(split=split)
    limit = int(least + share * (most - least))
    work, orders = example(limit, split=split)
    choices = fitting_choices(work, orders, lean_whole=lean_whole)
    assert choices
    for ways, run in choices:
        assert max(peak_bytes(work, run, ways)) <= limit
        assert any(ways)
        for cell, way in enumerate(ways):
            if num_lean(way):
                fewer = list(ways)
                fewer[cell] = work.lean_ways.way(work.cell_kind[cell], num_lean(way) - 1)
                if fewer[cell]:
                    assert peak_bytes(work, run, fewer)[work.cell_chunk[cell].rank] > limit


def test_backwards_of_lean_cells_alone_run_whole_if_they_may() -> None:
    least, most = needs(split=True)
    work, orders = example((least + most) // 2, split=True)
    for ways, run in fitting_choices(work, orders, lean_whole=True):
        whole = {cell for order in run for phase, cell in order if phase == Phase.BACKWARD}
        assert whole == {cell for cell, way in enumerate(ways) if way}
        time_order(work, run, ways)  # every task is still there once, and the order runs
    for _, run in fitting_choices(work, orders):
        assert run == orders


def test_whole_backwards_fit_where_halves_do_not() -> None:
    least, _ = needs(split=True)
    work, orders = example(least - 1, split=True)
    with pytest.raises(CannotFitError):
        fitting_choices(work, orders)
    for ways, run in fitting_choices(work, orders, lean_whole=True):
        assert max(peak_bytes(work, run, ways)) < least


def test_ranks_that_fit_recompute_nothing() -> None:
    work, orders = example()
    store: list[Way] = [()] * work.num_cells
    peaks = peak_bytes(work, orders, store)
    tight = max(range(4), key=lambda rank: peaks[rank])
    limited, _ = example(peaks[tight] - 1)
    for ways, _ in fitting_choices(limited, orders):
        assert {limited.cell_chunk[cell].rank for cell, way in enumerate(ways) if way} == {tight}


def test_what_does_not_fit_with_all_layers_lean_is_refused() -> None:
    least, _ = needs(split=False)
    work, orders = example(least - 1)
    with pytest.raises(CannotFitError) as error:
        fitting_choices(work, orders)
    assert (error.value.needed_bytes, error.value.available_bytes) == (least, least - 1)
    fits, orders = example(least)
    assert fitting_choices(fits, orders)


def test_a_batch_without_backward_keeps_nothing() -> None:
    request: pb.PlanRequest = corners.forward_only()
    request.job.cluster.memory_bytes[:] = [8_000_000]  # what the layers of the first rank take
    job = Job.from_spec(request.job)
    chunks = chunks_of(job, latency_balanced_partition(request.job, request.batch))
    work = Work(job=job, forward_only=True, chunks=chunks, parts=whole_parts(job, request.batch))
    stage_of = [[chunk.rank for chunk in of_module] for of_module in work.chunks]
    orders = table_orders(work, stage_of, partial(interleaved_1f1b, stages_of_rank=1))
    assert all(phase == Phase.FORWARD for order in orders for phase, _ in order)
    assert fitting_choices(work, orders) == [([()] * work.num_cells, orders)]
