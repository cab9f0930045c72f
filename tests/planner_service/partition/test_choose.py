"""Choosing segments and sizes: what is asked for is kept, what fits is found, and the best tried is taken."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NoReturn

import pytest
from cases import CANNOT_FIT, FITTING, documents, job, module, request
from dip.errors import CannotFitError
from dip.job import Job
from dip.validation import validate_partition

from planner_service.partition import trials
from planner_service.partition.choose import SEEDS, Chooser
from planner_service.search.quick import ROUNDS
from planner_service.search.stopping import Stopping

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb


def chooser(asked: pb.PlanRequest, evaluations: int = 200) -> Chooser:
    stopping = Stopping(seconds=1, max_evaluations=evaluations)
    kept = asked.partition if asked.partition.chunks else None
    return Chooser(Job.from_spec(asked.job), asked.batch, stopping, kept)


@pytest.mark.parametrize("name", FITTING)
def test_every_corner_of_the_contract_gets_a_partition_that_fits(name: str) -> None:
    asked = FITTING[name]()
    chosen = chooser(asked, 20).choose()
    validate_partition(asked.job, chosen.partition)
    assert chosen.candidate.makespan_us >= 0
    if asked.partition.chunks:
        assert chosen.partition == asked.partition


@pytest.mark.parametrize("name", CANNOT_FIT)
def test_what_cannot_fit_is_refused(name: str) -> None:
    with pytest.raises(CannotFitError):
        chooser(CANNOT_FIT[name]()).choose()


def test_more_budget_never_chooses_worse() -> None:
    asked = request(job([module("vision", 16), module("language", 16, inputs=["vision"])]), documents(6))
    lengths = [chooser(asked, evaluations).choose().candidate.makespan_us for evaluations in (1, 200, 1500)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-1]


def test_it_is_the_same_every_time() -> None:
    asked = request(job(), documents(5))
    first, again = chooser(asked).choose(), chooser(asked).choose()
    assert (first.partition, first.candidate.work.parts) == (again.partition, again.candidate.work.parts)
    assert first.candidate.makespan_us == again.candidate.makespan_us


def test_sizes_that_are_asked_for_are_aimed_at() -> None:
    asked = request(job(sub_microbatch_units={"vision": 128}), documents(5))
    parts = chooser(asked).choose().candidate.work.parts
    assert all(part.units <= 128 or len(part.sizes) == 1 for part in parts if part.module == 0)
    assert any(part.units > 64 for part in parts if part.module == 0)


def test_a_microbatch_that_does_not_fit_whole_is_cut_between_samples() -> None:
    """Room for one document at a time, all lean: no number of parts that is tried first need be enough."""
    asked = request(job(ranks=2, memory_bytes=[0]), [[{"language": [900]} for _ in range(12)]])
    asked.job.cluster.memory_bytes[0] = 10_000_000 + 6 * 900 * 25
    chosen = chooser(asked).choose()
    assert all(len(part.sizes) == 1 for part in chosen.candidate.work.parts)


def many_encoders() -> pb.PlanRequest:
    """Seven encoders and many instances in each sample: far more choices than can be tried."""
    encoders = [module(f"encoder {i}", 32) for i in range(7)]
    spec = job([*encoders, module("language", 32, inputs=[m.name for m in encoders])])
    sample = {**{m.name: [100] * 8 for m in encoders}, "language": [400] * 8}
    return request(spec, [[sample]] * 2)


def test_some_partitions_are_tried_in_any_case_before_a_batch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the budget; and of those tried, the one that lacks least says why."""
    needed = iter((8, 5, 7, 9, 1))

    def refuse(*_: object) -> NoReturn:
        raise CannotFitError(rank=0, needed_bytes=next(needed), available_bytes=1)

    monkeypatch.setattr(trials, "groups_fit", lambda *_: False)
    monkeypatch.setattr(trials, "fitting_parts", refuse)
    with pytest.raises(CannotFitError) as caught:
        chooser(request(job(), documents(3)), 1).choose()
    assert caught.value.needed_bytes == 5
    assert next(needed) == 1


def test_a_budget_that_one_try_overruns_is_left_at_that() -> None:
    """A second passes at every look at the clock: what the first try found goes on to the search as it is."""
    asked = request(job(), documents(5))
    ticks = itertools.count()
    late = Stopping(seconds=1, clock=lambda: float(next(ticks)))
    chosen = Chooser(Job.from_spec(asked.job), asked.batch, late).choose()
    assert late.evaluations == 1 + SEEDS + 2 * ROUNDS  # the try, its seeds, and the best of them there and back
    assert chosen.candidate.makespan_us > 0


def test_a_budget_ends_even_where_nothing_fits() -> None:
    """A little short of the layers' bytes a rank: no choice fits, and not all of them are tried to find that out."""
    asked = many_encoders()
    free = chooser(asked).choose().candidate
    asked.job.cluster.memory_bytes[:] = [min(free.work.static_bytes) + 1000]
    short = chooser(asked, evaluations := 50)
    with pytest.raises(CannotFitError):
        short.choose()
    assert short.stopping.evaluations <= 2 * evaluations + 1
