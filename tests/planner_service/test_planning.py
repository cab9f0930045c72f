"""Plans of any request: valid, never worse than the first, the same for the same seed, refused only with reason."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from cases import documents, job, module, request
from corners import CANNOT_FIT, FITTING
from dip.errors import CannotFitError, InvalidRequestError
from dip.fallback import fallback_plan
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_partition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from least_memory import least_kept_bytes
from random_requests import partitions, plan_requests

from planner_service.check import check_plan
from planner_service.planning import make_partition, make_plan, typical_batch
from planner_service.search import portfolio

if TYPE_CHECKING:
    from pathlib import Path

SLOW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
FEW = 40


@pytest.fixture(autouse=True)
def _short_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    """CP-SAT stops early on whole instances; what it proves is shown beside it."""
    monkeypatch.setattr(portfolio, "EXACT_EFFORT", 0.02)


def few_evaluations(asked: pb.PlanRequest, evaluations: int = FEW) -> pb.PlanRequest:
    asked.job.options.max_evaluations = evaluations
    return asked


@pytest.mark.parametrize("name", FITTING)
def test_every_corner_of_the_contract_has_a_valid_plan(name: str) -> None:
    asked = few_evaluations(FITTING[name]())
    seen: list[pb.Plan] = []
    plan = make_plan(asked, on_plan=seen.append)
    assert [check_plan(asked, other).faults for other in (*seen, plan)] == [()] * (len(seen) + 1)
    assert not check_plan(asked, plan).warnings
    lengths = [other.makespan_us for other in seen]
    assert lengths == sorted(set(lengths), reverse=True)  # each is better than the one before
    assert plan.makespan_us == lengths[-1]
    same = [
        other.lower_bound_us
        for other in (*seen, plan)
        if (other.partition, list(other.sub_microbatches)) == (plan.partition, list(plan.sub_microbatches))
    ]
    assert same == sorted(same)  # of one choice, more and more is proven
    assert not plan.fallback


@pytest.mark.parametrize("name", CANNOT_FIT)
def test_what_cannot_fit_is_refused(name: str) -> None:
    with pytest.raises(CannotFitError) as caught:
        make_plan(few_evaluations(CANNOT_FIT[name]()))
    assert caught.value.needed_bytes > caught.value.available_bytes > 0


@SLOW
@given(st.data())
def test_any_request_with_a_partition_has_a_valid_plan_or_a_piece_that_cannot_fit(data: st.DataObject) -> None:
    asked = data.draw(plan_requests())
    asked.partition.CopyFrom(data.draw(partitions(asked.job)))
    check_any(asked)


@SLOW
@given(plan_requests())
def test_any_request_without_a_partition_has_a_valid_plan_or_is_short_of_memory(asked: pb.PlanRequest) -> None:
    check_any(asked)


def check_any(asked: pb.PlanRequest) -> None:
    seen: list[pb.Plan] = []
    try:
        plan = make_plan(asked, on_plan=seen.append)
    except CannotFitError as error:
        check_refusal(asked, error)
        return
    for made in (seen[0], plan):
        result = check_plan(asked, made)
        assert not result.faults
        assert not result.warnings
    assert plan.lower_bound_us <= plan.makespan_us <= seen[0].makespan_us
    assert plan.search.optimal == (plan.makespan_us == plan.lower_bound_us)
    assert plan.search.steps[-1].makespan_us == plan.makespan_us
    lengths = [step.makespan_us for step in plan.search.steps]
    assert lengths == sorted(lengths, reverse=True)
    with contextlib.suppress(CannotFitError):
        assert plan.makespan_us <= fallback_plan(asked.job, plan.partition, asked.batch).makespan_us


def check_refusal(asked: pb.PlanRequest, error: CannotFitError) -> None:
    assert error.needed_bytes > error.available_bytes
    if asked.partition.chunks:
        least = least_kept_bytes(asked, error.rank)
        assert least.static_bytes + least.worst_piece_bytes > error.available_bytes == least.limit_bytes


@settings(SLOW, max_examples=15)
@given(plan_requests(max_evaluations=150), st.integers(0, 5))
def test_the_same_request_and_seed_give_the_same_plan(asked: pb.PlanRequest, seed: int) -> None:
    try:
        first = make_plan(asked, seed=seed)
    except CannotFitError:
        return
    again = make_plan(asked, seed=seed)
    assert first.digest == again.digest
    assert first.search.evaluations == again.search.evaluations


def too_large_for_proof() -> pb.PlanRequest:
    """Request whose plan comes from annealing and from windows: what random choices decide."""
    return request(job(memory_bytes=[8_000_000]), documents(14))


def test_another_process_finds_the_same_plan(tmp_path: Path) -> None:
    """Whatever hashes its strings get there; long enough for every engine, CP-SAT's windows included."""
    asked = few_evaluations(too_large_for_proof(), 400)
    asked.job.options.seed = 3
    path = tmp_path / "request.bin"
    path.write_bytes(asked.SerializeToString())
    script = (
        "import sys; from dip.planner.v1 import planner_pb2 as pb; from planner_service.planning import make_plan;"
        "plan = make_plan(pb.PlanRequest.FromString(open(sys.argv[1], 'rb').read())); print(plan.digest.hex())"
    )
    digest = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        env={"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    plan = make_plan(asked)
    assert any(step.engine.startswith(("annealing", "CP-SAT")) for step in plan.search.steps)
    assert digest == plan.digest.hex()
    assert not check_plan(asked, plan).faults


def test_a_seed_given_outranks_the_jobs() -> None:
    asked = few_evaluations(too_large_for_proof(), 200)
    asked.job.options.seed = 1
    by_job, same, other = (make_plan(asked, seed=seed).digest for seed in (None, 1, 2))
    assert by_job == same != other


def test_an_invalid_request_is_refused_with_every_fault() -> None:
    asked = request(job(), documents(2))
    asked.job.cluster.ranks = 0
    asked.batch.microbatches[0].samples[0].instances["audio"].units.append(3)
    with pytest.raises(InvalidRequestError):
        make_plan(asked)


def test_a_loaded_partition_is_kept_as_it_is() -> None:
    asked = few_evaluations(FITTING["loaded_partition"]())
    assert make_plan(asked).partition == asked.partition


def test_a_partition_needs_no_batch() -> None:
    """Nor one with work: an empty batch says nothing of those to come."""
    spec = job(segments={"language": 2})
    spec.options.max_evaluations = FEW
    made = make_partition(spec)
    assert made == make_partition(spec, pb.Batch(microbatches=[pb.Microbatch()]))
    asked = request(spec, documents(3))
    asked.partition.CopyFrom(made)
    assert not check_plan(asked, make_plan(asked)).faults
    assert sum(chunk.module == "language" for chunk in made.chunks) == 8


def test_a_partition_of_an_invalid_job_or_batch_is_refused() -> None:
    spec = job()
    with pytest.raises(InvalidRequestError):
        make_partition(spec, pb.Batch())
    spec.cluster.ranks = -1
    with pytest.raises(InvalidRequestError):
        make_partition(spec)


def test_a_typical_batch_has_middle_sized_work_for_every_module() -> None:
    from dip.job import Job
    from dip.validation import validate_batch

    spec = job(sub_microbatch_units={"vision": 100})
    made = typical_batch(Job.from_spec(spec))
    validate_batch(spec, made)
    assert len(made.microbatches) == 8
    assert {name: list(held.units) for name, held in made.microbatches[0].samples[0].instances.items()} == {
        "vision": [100],
        "language": [256],
    }


def test_many_modules_do_not_delay_the_first_plan() -> None:
    """The numbers of segments and parts of eight modules combine to billions of choices."""
    encoders = [module(f"encoder {i}", 32) for i in range(7)]
    spec = job([*encoders, module("language", 32, inputs=[m.name for m in encoders])])
    sample = {**{m.name: [100] * 8 for m in encoders}, "language": [400] * 8}
    asked = few_evaluations(request(spec, [[sample]] * 4), 1)
    assert not check_plan(asked, make_plan(asked)).faults


def test_a_partition_of_several_batches_tells_of_its_progress() -> None:
    told: list[tuple[int, int | None]] = []
    asked = few_evaluations(request(job(), documents(4)), 60)
    more = [request(job(), documents(count)).batch for count in (2, 3)]
    partition = make_partition(
        asked.job, asked.batch, more=more, on_progress=lambda tried, best_us: told.append((tried, best_us))
    )
    assert [tried for tried, _ in told] == list(range(1, len(told) + 1))
    lengths = [best_us for _, best_us in told if best_us is not None]
    assert lengths == sorted(lengths, reverse=True)
    validate_partition(asked.job, partition)
    broken = pb.Batch(microbatches=[pb.Microbatch(samples=[pb.Sample()])])
    with pytest.raises(InvalidRequestError):
        make_partition(asked.job, asked.batch, more=[broken])
