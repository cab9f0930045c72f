"""Shows that ranks run a plan only if all of them have it, all fall back otherwise, and never run different batches."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from dip.digests import plan_digest
from dip.planner.v1 import planner_pb2 as pb
from hypothesis import given
from hypothesis import strategies as st
from pipelines.cases import check, make_case, random_batch
from pipelines.models import TinyModel, TinyModule
from pipelines.plans import random_plan
from pipelines.scripted import Raised, refused
from pipelines.training import WITHOUT_PLAN, train_all

from trainer_agent.agreement import Ballot, disagreement
from trainer_agent.errors import RankMismatchError

if TYPE_CHECKING:
    from pipelines.processes import Workers

DIGESTS = st.binary(min_size=32, max_size=32).filter(any)
BALLOT = Ballot(attempt=3, iteration=5, batch_digest=b"b" * 32, plan_digest=b"p" * 32)


@given(
    st.builds(
        Ballot,
        attempt=st.integers(0, 2**63 - 1),
        iteration=st.integers(0, 2**63 - 1),
        batch_digest=DIGESTS,
        plan_digest=st.none() | DIGESTS,
    )
)
def test_a_ballot_arrives_as_it_was(ballot: Ballot) -> None:
    assert Ballot.from_bytes(ballot.to_bytes()) == ballot


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (replace(BALLOT, attempt=4), "not every rank is at the same iteration: {} not where rank 0 is, iteration 5"),
        (replace(BALLOT, iteration=6), "not every rank is at the same iteration: {} not where rank 0 is, iteration 5"),
        (replace(BALLOT, plan_digest=b"q" * 32), "not every rank had the same plan: {} had another than rank 0"),
        (replace(BALLOT, plan_digest=None), "not every rank had a plan: {} had none"),
    ],
)
def test_one_other_vote_in_any_place_is_no_agreement_and_says_so(other: Ballot, reason: str) -> None:
    assert not disagreement([BALLOT] * 4)
    assert disagreement([other, *[BALLOT] * 3])
    for place in range(1, 4):
        ballots = [BALLOT] * 4
        ballots[place] = other
        assert disagreement(ballots).startswith(reason.format(f"rank {place}"))


def test_many_that_differ_are_named_in_part() -> None:
    ballots = [BALLOT, *[replace(BALLOT, plan_digest=None)] * 1000]
    assert disagreement(ballots) == "not every rank had a plan: ranks 1, 2, 3, 4, 5, 6, 7, 8 and 992 more had none"


def test_no_votes_at_all_are_no_agreement() -> None:
    assert disagreement([replace(BALLOT, plan_digest=None)] * 3) == "no rank had a plan"


def test_other_batches_are_an_error_that_names_the_ranks_that_differ() -> None:
    stranger = replace(BALLOT, batch_digest=b"c" * 32, iteration=9)
    with pytest.raises(RankMismatchError, match="rank 1 at iteration 9") as caught:
        disagreement([BALLOT, stranger, BALLOT, stranger])
    assert caught.value.ranks == (1, 3)


def changed(plan: pb.Plan, batch: pb.Batch) -> pb.Plan:
    """The same plan with one time changed, under its right digest."""
    made = pb.Plan()
    made.CopyFrom(plan)
    made.ranks[1].actions[0].end_us += 1
    made.digest = plan_digest(made, batch)
    return made


def broken(plan: pb.Plan) -> pb.Plan:
    """The same plan and digest without rank 1's last action: what rank 1 alone can notice."""
    made = pb.Plan()
    made.CopyFrom(plan)
    del made.ranks[1].actions[-1]
    return made


def test_all_fall_back_together_whatever_one_rank_has_instead(workers: Workers) -> None:
    draw = random.Random(5)
    model = TinyModel(modules=(TinyModule(name="vision"), TinyModule(name="language", inputs=("vision",), layers=5)))
    case = make_case(draw, "one rank differs", model, 3, [[random_batch(draw, model, 3)] for _ in range(6)])
    for number in (1, 2, 3, 4):
        (step,) = case.steps[number]
        assert step.plan is not None
        batch = step.batch.metadata()
        other = {
            1: changed(step.plan, batch),
            2: broken(step.plan),
            3: None,
            4: random_plan(draw, case.spec, case.partition, batch),
        }[number]
        case.steps[number] = [replace(step, other_plans={1: other})]
    traces = workers.run(train_all, 3, [case])
    check(case, [trace for (trace,) in traces])
    another = "not every rank had the same plan: rank 1 had another than rank 0"
    none = "not every rank had a plan: rank 1 had none"
    for rank, (trace,) in enumerate(traces):
        assert trace.fallbacks == [False, True, True, True, True, False]
        reasons = [report.fallback_reason for report in trace.reports]
        if rank == 1:
            assert reasons[2].startswith("refused: rank 1: ")
            reasons[2] = none
            assert reasons[3] == WITHOUT_PLAN
            reasons[3] = none
        assert reasons == ["", another, none, none, another, ""]


def test_ranks_at_different_iterations_fall_back(workers: Workers) -> None:
    draw = random.Random(6)
    model = TinyModel(modules=(TinyModule(name="language", layers=3),))
    case = make_case(draw, "iterations", model, 2, [[random_batch(draw, model, 2)] for _ in range(2)])
    case = replace(case, first_iterations={1: 4})
    check(case, [trace for (trace,) in workers.run(train_all, 2, [case])])


def test_ranks_with_different_batches_all_raise(workers: Workers) -> None:
    draw = random.Random(7)
    model = TinyModel(modules=(TinyModule(name="language", layers=3),))
    case = make_case(draw, "batches", model, 2, [[random_batch(draw, model, 2)]])
    case.steps[0] = [replace(case.steps[0][0], other_batches={1: random_batch(draw, model, 2)})]
    for raised in workers.run(refused, 2, case):
        assert isinstance(raised, Raised)
        assert raised.kind == "RankMismatchError"
        assert "of rank 1 differs from rank 0's" in raised.message
        assert raised.afterwards == "ExecutorFailedError"
