"""Choosing segments and sizes: what is asked for is kept, what fits is found, and the best tried is taken."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NoReturn

import pytest
from cases import documents, job, module, request
from corners import CANNOT_FIT, FITTING
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


def test_it_says_how_far_it_is_and_why() -> None:
    asked = request(job(), documents(5))
    seen: list[tuple[int, int | None]] = []
    made = Chooser(
        Job.from_spec(asked.job),
        asked.batch,
        Stopping(seconds=1, max_evaluations=150),
        on_progress=lambda tried, best: seen.append((tried, best)),
    )
    chosen = made.choose()
    assert [tried for tried, _ in seen] == list(range(1, len(made.report.tried) + 1))
    best = [makespan for _, makespan in seen if makespan is not None]
    assert chosen.makespan_us <= best[-1]
    assert made.report.chosen in [tried.choice for tried in made.report.tried]
    assert "vision" in made.report.text()


def test_several_batches_speak_together() -> None:
    """One of images and one of text: the partition is judged by both, the first one's schedule is at hand."""
    images = request(job(), documents(4))
    text = request(job(), [[{"language": [600]}]] * 6)
    made = Chooser(Job.from_spec(images.job), images.batch, Stopping(seconds=1, max_evaluations=100), more=[text.batch])
    chosen = made.choose()
    assert len(chosen.candidates) == 2
    assert chosen.makespan_us == sum(candidate.makespan_us for candidate in chosen.candidates)
    assert {part.module for part in chosen.candidates[1].work.parts} == {1}


def test_going_there_and_back_is_found_where_it_shortens_the_ramp() -> None:
    """A module after another, backwards whole, few microbatches: looped placement pays for the ramp twice."""
    spec = job([module("language", 16, us_per_unit=0.1), module("video", 16, inputs=["language"], us_per_unit=4)])
    asked = request(spec, [[{"language": [256], "video": [1024]}]] * 8)
    report = (made := chooser(asked, 1500)).choose() and made.report
    assert report.chosen
    assert any(shape.zigzag or shape.backwards for shape in report.chosen.shapes)
    looped = [t.outcome.makespan_us for t in report.tried if not any(s.zigzag or s.backwards for s in t.choice.shapes)]
    best = report.ranking[0].outcome.makespan_us
    assert best
    assert all(makespan is None or makespan > best for makespan in looped)


def test_a_rank_too_small_for_every_module_holds_one() -> None:
    """Rank 1 cannot hold a layer of each: one of the modules stays off it."""
    spec = job(ranks=2, memory_bytes=[40_000_000, 1_300_000])
    for held in spec.model.modules:
        held.layers[0].static_bytes = 1_000_000
    chosen = chooser(request(spec, [[{"vision": [64], "language": [64]}]] * 2)).choose()
    assert sum(chunk.num_layers for chunk in chosen.partition.chunks if chunk.rank == 1) == 1
