"""The agent as the training loop sees it: numbers, plans, reports, one start for all processes, forks, the end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import cases
import grpc
import pytest
import torch.distributed as dist
from dip.connecting import Endpoints
from dip.errors import InvalidRequestError
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from fake_planner import FakePlanner, eventually
from pipelines.starts import connect
from waiting import PATIENCE_S

from trainer_agent import AgentSettings, Mesh, TrainerAgent, TrainerAgentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pipelines.processes import Workers

SPEC = cases.job(ranks=1)
UNHURRIED: dict[str, Any] = {"schedule_wait_ms": int(PATIENCE_S * 1000), "connect_wait_s": PATIENCE_S}


def describe(batch: object) -> pb.Batch:
    return cases.batch(cases.documents(2))


@pytest.fixture
def planner() -> Iterator[FakePlanner]:
    planner = FakePlanner()
    yield planner
    planner.stop()


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    store = tmp_path_factory.mktemp("mesh") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield Mesh.create(timeout_s=4 * PATIENCE_S)  # of which the start waits a quarter for the planner
    dist.destroy_process_group()


@pytest.fixture
def make(planner: FakePlanner, mesh: Mesh) -> Iterator[Callable[..., TrainerAgent]]:
    agents: list[TrainerAgent] = []

    def make(*, alone: bool = False, job_id: str | None = "job", **more: pb.Batch | pb.Partition) -> TrainerAgent:
        endpoints = None if alone else Endpoints.parse(planner.listen())
        settings = AgentSettings(endpoints=endpoints, job_id=job_id, **UNHURRIED)
        agents.append(TrainerAgent.connect(SPEC, mesh, settings=settings, **more))
        return agents[-1]

    yield make
    for agent in agents:
        agent.close()


def test_every_batch_is_taken_with_its_number_and_its_plan(make: Callable[..., TrainerAgent]) -> None:
    agent = make()
    batches = [object() for _ in range(5)]
    for iteration, batch in enumerate(agent.wrap_loader(batches, describe)):
        assert batch is batches[iteration]
        taken = agent.take(batch)
        assert (taken.iteration, taken.batch) == (iteration, describe(batch))
        assert taken.plan is not None
        assert taken.plan.partition == agent.partition
        assert taken.waited_us >= 0
    stats = agent.stats
    assert (stats.iterations, stats.without_plan, stats.fallbacks) == (5, 0, 0)
    assert stats.waited_us > 0


def test_a_misspelt_setting_is_warned_about_at_the_start(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("DIP_PLANNER_ENDPOINT", raising=False)
    monkeypatch.setenv("DIP_ENDPOINT", "planner:50061")
    TrainerAgent.connect(SPEC, mesh).close()
    assert "DIP_ENDPOINT: is set, but there is no such setting; is DIP_PLANNER_ENDPOINT meant?" in caplog.messages


def test_a_planner_that_is_away_is_no_matter_where_another_serves_the_store(planner: FakePlanner, mesh: Mesh) -> None:
    variables = {"DIP_PLANNER_ENDPOINT": f"127.0.0.1:1,{planner.listen()}"}
    settings = AgentSettings.from_environment(variables, **UNHURRIED)
    agent = TrainerAgent.connect(SPEC, mesh, settings=settings)
    for batch in agent.wrap_loader([object() for _ in range(3)], describe):
        assert agent.take(batch).plan is not None
    agent.close()


def test_what_executors_compare_is_what_the_planner_knows(
    planner: FakePlanner, make: Callable[..., TrainerAgent], mesh: Mesh
) -> None:
    agent = make()
    registered = planner.requests["RegisterJob"][0]
    assert (agent.job_id, agent.attempt) == (registered.job_id, registered.attempt)
    assert agent.spec == SPEC
    assert agent.mesh is mesh


def test_a_loaded_partition_and_a_representative_batch_are_handed_on(
    planner: FakePlanner, make: Callable[..., TrainerAgent]
) -> None:
    loaded = default_partition(cases.job(ranks=1, segments={"vision": 2}))
    agent = make(partition=loaded, representative_batch=describe(0))
    assert agent.partition == loaded
    assert planner.requests["RegisterJob"][0].representative_batch == describe(0)


def test_without_a_planner_nothing_is_waited_for(make: Callable[..., TrainerAgent]) -> None:
    agent = make(alone=True)
    for batch in agent.wrap_loader("abc", describe):
        taken = agent.take(batch)
        assert taken.plan is None
        assert taken.waited_us == 0
        assert taken.reason == "no planner is configured"
        agent.report(pb.ReportExecutionRequest(iteration=taken.iteration, fallback=True, fallback_reason="why"))
    assert agent.stats.fallbacks == agent.stats.without_plan == 3
    assert agent.stats.last_fallback_reason == "why"


def test_evaluation_in_between_takes_numbers_of_its_own(make: Callable[..., TrainerAgent]) -> None:
    agent = make()
    seen: list[int] = []
    for number, batch in enumerate(agent.wrap_loader([f"train {i}" for i in range(5)], describe)):
        taken = agent.take(batch)
        assert taken.plan is not None
        seen.append(taken.iteration)
        if number == 1:
            for other in agent.wrap_loader([f"eval {i}" for i in range(3)], describe):
                taken = agent.take(other)
                assert taken.plan is not None
                seen.append(taken.iteration)
    assert seen == [0, 1, 4, 5, 6, 2, 3, 7][: len(seen)]
    assert len(seen) == 8


def test_epochs_and_resumed_numbers(make: Callable[..., TrainerAgent]) -> None:
    agent = make()
    first = [agent.take(batch).iteration for batch in agent.wrap_loader("ab", describe, start_iteration=100)]
    second = [agent.take(batch).iteration for batch in agent.wrap_loader("ab", describe)]
    assert (first, second) == ([100, 101], [102, 103])
    with pytest.raises(ValueError, match="start_iteration: 5; this start of the job has announced batches up to 103"):
        next(iter(agent.wrap_loader("ab", describe, start_iteration=5)))


def test_one_object_for_all_iterations_is_told_apart_by_order(make: Callable[..., TrainerAgent]) -> None:
    agent, batch = make(), object()
    assert [agent.take(one).iteration for one in agent.wrap_loader([batch] * 4, describe)] == [0, 1, 2, 3]


def test_a_batch_that_was_not_handed_out_is_refused(make: Callable[..., TrainerAgent]) -> None:
    agent = make()
    with pytest.raises(TrainerAgentError, match="move batches to the device inside the loader"):
        agent.take("stranger")
    for batch in agent.wrap_loader([["a"]], describe):
        agent.take(batch)
        with pytest.raises(TrainerAgentError, match="was stepped before"):
            agent.take(batch)


def test_a_loop_may_skip_batches_or_fetch_one_ahead(make: Callable[..., TrainerAgent]) -> None:
    agent = make()
    batches = iter(agent.wrap_loader([f"{i}" for i in range(20)], describe))
    next(batches)
    second, third = next(batches), next(batches)
    assert [agent.take(second).iteration, agent.take(third).iteration] == [1, 2]
    for _ in range(10):
        last = next(batches)
    assert agent.take(last).iteration == 12
    assert agent.take(next(batches)).plan is not None


def test_metadata_that_break_the_contract_are_refused_where_they_are_made(make: Callable[..., TrainerAgent]) -> None:
    agent = make()
    wrong = cases.batch([[{"vision": [0], "language": [5]}]])
    with pytest.raises(InvalidRequestError, match=r"describe\(batch\).*vision"):
        next(iter(agent.wrap_loader("a", lambda _: wrong)))


def test_metadata_may_come_in_the_same_message_each_time(make: Callable[..., TrainerAgent]) -> None:
    agent, message = make(), pb.Batch()

    def describe_again(batch: int) -> pb.Batch:
        message.CopyFrom(cases.batch(cases.documents(batch)))
        return message

    for batch in agent.wrap_loader([1, 2, 3, 4], describe_again):
        taken = agent.take(batch)
        assert len(taken.batch.microbatches) == batch
        assert taken.plan is not None
        assert taken.plan.batch == taken.batch


@pytest.mark.parametrize("wrong", [None, {"microbatches": []}])
def test_metadata_of_another_type_are_refused(make: Callable[..., TrainerAgent], wrong: object) -> None:
    with pytest.raises(TrainerAgentError, match=r"describe\(batch\) returned a \w+; must be a dip.planner.v1"):
        next(iter(make(alone=True).wrap_loader("a", lambda _: wrong)))  # type: ignore[arg-type, return-value]


def test_a_fallback_is_counted_with_its_reason_and_both_are_reported(
    planner: FakePlanner, make: Callable[..., TrainerAgent]
) -> None:
    planner.fail_at("SubmitBatch", 1, grpc.StatusCode.FAILED_PRECONDITION, "cannot fit")
    agent = make()
    reasons = []
    for batch in agent.wrap_loader("ab", describe):
        taken = agent.take(batch)
        reasons.append(taken.reason)
        agent.report(pb.ReportExecutionRequest(iteration=taken.iteration, fallback=True, fallback_reason="why"))
    assert reasons == ["not planned: cannot fit", ""]
    assert agent.stats.fallbacks == 2
    assert agent.stats.without_plan == 1
    assert agent.stats.last_fallback_reason == "why"
    eventually(lambda: len(planner.requests["ReportExecution"]) == 2)
    assert {report.job_id for report in planner.requests["ReportExecution"]} == {"job"}
    assert {report.fallback_reason for report in planner.requests["ReportExecution"]} == {"why"}


def test_a_closed_agent_says_so(make: Callable[..., TrainerAgent]) -> None:
    agent = make()
    agent.close()
    agent.close()
    with pytest.raises(TrainerAgentError, match="closed"):
        next(iter(agent.wrap_loader("a", describe)))


def test_a_forked_process_may_neither_use_nor_close_it(planner: FakePlanner, make: Callable[..., TrainerAgent]) -> None:
    agent = make()
    batches = iter(agent.wrap_loader([object(), object()], describe))
    first = next(batches)
    child = os.fork()
    if child == 0:
        agent.close()
        try:
            agent.take(first)
        except TrainerAgentError as error:
            os._exit(0 if "forked" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert agent.take(first).plan is not None


def test_all_processes_begin_alike(planner: FakePlanner, workers: Workers, tmp_path: Path) -> None:
    spec = cases.job(ranks=3)
    told = workers.run(connect, 3, spec, planner.listen(), None)
    assert len({(one.job_id, one.attempt, one.partition) for one in told}) == 1
    assert planner.calls["RegisterJob"] == 1


def test_all_processes_hear_of_a_refusal(planner: FakePlanner, workers: Workers) -> None:
    planner.fail_at("RegisterJob", 1, grpc.StatusCode.FAILED_PRECONDITION, "rank 1 needs 9 bytes, has 8")
    told = workers.run(connect, 2, cases.job(ranks=2), planner.listen(), "job")
    assert [one.error for one in told] == [told[0].error] * 2
    assert "rank 1 needs 9 bytes" in told[0].error
