"""Shows that of several candidates the shortest that fits is kept, and that the least shortage is told if none does."""

from __future__ import annotations

from functools import partial

import cases
import corners
import pytest
from dip.errors import CannotFitError

from planner_service.baselines.drafts import Candidate, draw, shortest
from planner_service.baselines.interleaved import interleaved_1f1b
from planner_service.baselines.latency_balanced import latency_balanced
from planner_service.check import check_plan

REQUEST = corners.seven_microbatches_on_four_ranks()


def candidates() -> list[Candidate]:
    """One and two stages a rank."""
    tables = [partial(interleaved_1f1b, stages_of_rank=many) for many in (1, 2)]
    return [one for table in tables for one in latency_balanced(REQUEST.job, REQUEST.batch, table)]


def test_the_shortest_is_kept() -> None:
    drafts = [draw(REQUEST.job, REQUEST.batch, candidate) for candidate in candidates()]
    assert drafts[0].makespan_us != drafts[1].makespan_us
    best = shortest(REQUEST.job, REQUEST.batch, candidates())
    assert best.makespan_us == min(draft.makespan_us for draft in drafts)
    plan = best.plan(REQUEST.batch)
    assert plan.makespan_us == best.makespan_us
    assert check_plan(REQUEST, plan).faults == ()


def test_what_does_not_fit_is_passed_over() -> None:
    drafts = [draw(REQUEST.job, REQUEST.batch, candidate).plan(REQUEST.batch) for candidate in candidates()]
    enough = max(schedule.peak_memory_bytes for plan in drafts for schedule in plan.ranks)
    least = [_least_memory([candidate]) for candidate in candidates()]
    assert least[0] != least[1]
    assert cases.STATIC_BYTES * 20 // 4 < min(least) < max(least) < enough
    assert _least_memory(candidates()) == min(least)


def _least_memory(tried: list[Candidate]) -> int:
    """Smallest limit with which one of the candidates fits: what the refusals ask for, from rank to rank."""
    limited = corners.seven_microbatches_on_four_ranks()
    limited.job.cluster.memory_bytes[:] = [1]
    while True:
        try:
            shortest(limited.job, limited.batch, tried)
        except CannotFitError as shortage:
            limited.job.cluster.memory_bytes[:] = [shortage.needed_bytes]
        else:
            return limited.job.cluster.memory_bytes[0]


def test_static_bytes_alone_can_be_too_much() -> None:
    small = corners.static_bytes_cannot_fit()
    with pytest.raises(CannotFitError) as error:
        draw(small.job, small.batch, candidates()[0])
    assert error.value.needed_bytes >= 5 * cases.STATIC_BYTES
