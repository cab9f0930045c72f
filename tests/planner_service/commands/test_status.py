"""Shows what `dip status` tells of a job and of its iterations: pages, sentences and JSON."""

from __future__ import annotations

import json
import re
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from dip.planner.v1 import planner_pb2 as pb
from serving import client, planner, register, run
from watched_jobs import LATE, documented, in_thread, report, trained

from benchmarks.held_port import HeldPort
from planner_service.commands.failure import BAD_INPUT, NO_SUCH_JOB, UNREACHABLE
from planner_service.watching import live
from planner_service.watching.failures import AwayError, NoSuchJobError, WatchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands.conftest import Ran


CHUNK = {"rank", "first_layer", "num_layers"}
REASON = {"reason", "ranks"}


def iterations_of(page: str) -> dict[int, list[str]]:
    """Return the cells of each iteration's line."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in page.splitlines()]
    return {int(cells[0]): cells for cells in rows if cells[0].isdigit()}


def test_a_job_is_described_and_its_iterations_are_listed(dip: Callable[..., Ran]) -> None:
    async def scenario() -> None:
        async with trained() as server:
            ran = await in_thread(dip, "status", "job", "--endpoint", server.address)
            assert (ran.code, ran.err) == (0, "")
            lines = ran.out.splitlines()
            assert lines[0] == "job  attempt of 1, 2 replicas of 2 ranks"
            assert [re.split(r"\s{2,}", line.strip()) for line in lines[1:4]] == [
                ["module", "layers", "chunks", "on ranks"],
                ["vision", "4", "2", "0-1"],
                ["language", "6", "2", "0-1"],
            ]
            assert "Planned 2 iterations ahead of what ranks have run, 1 batch waiting for a plan." in lines
            happened = {iteration: cells[-1] for iteration, cells in iterations_of(ran.out).items()}
            assert list(happened) == [4, 3, 2, 1, 0]
            assert happened[4] == "waits for a plan"
            assert happened[3] == "planned"
            assert happened[2].startswith("no plan for replica 0: ")
            assert happened[1] == f"fell back on replica 1: {LATE}"
            assert happened[0] == "ran the plan"

    run(scenario())


def test_measured_is_compared_with_planned_where_the_plan_ran(dip: Callable[..., Ran]) -> None:
    async def scenario() -> None:
        async with trained() as server, client(server) as stub:
            plan = (await stub.GetPlan(pb.GetPlanRequest(job_id="job"))).plan
            ran = await in_thread(dip, "status", "job", "--endpoint", server.address)
            of = iterations_of(ran.out)
            assert of[0][3:5] == ["1.00 s", f"{1_000_001 / plan.makespan_us - 1:+.1%}"]
            assert of[0][2] == f"{plan.makespan_us / plan.lower_bound_us - 1:.1%}"
            assert of[1][3:5] == ["900 ms", "-"]

    run(scenario())


def test_a_status_is_printed_as_documented_json(dip: Callable[..., Ran]) -> None:
    async def scenario() -> None:
        async with trained() as server:
            ran = await in_thread(dip, "status", "job", "--json", "--endpoint", server.address)
            found = json.loads(ran.out)
            assert found.keys() == documented("status")
            assert found["job"].keys() == documented("job")
            assert {frozenset(module) for module in found["modules"]} == {frozenset(documented("module")) - CHUNK}
            assert {frozenset(told) for told in found["iterations"]} == {frozenset(documented("iteration")) - REASON}
            assert found["modules"][0]["chunks"][1] == {"rank": 1, "first_layer": 2, "num_layers": 2}
            of = {(told["iteration"], told["replica"]): told for told in found["iterations"]}
            assert list(of) == sorted(of)
            assert [of[key]["state"] for key in ((0, 0), (2, 0), (4, 0))] == ["planned", "unplanned", "waiting"]
            assert of[0, 0]["gap"] == pytest.approx(of[0, 0]["makespan_us"] / of[0, 0]["lower_bound_us"] - 1)
            assert (of[0, 0]["measured_us"], of[0, 0]["stalled_us"], of[0, 0]["reported_ranks"]) == (1_000_001, 1, 2)
            assert (of[1, 1]["fallback_ranks"], of[1, 1]["fallback_reasons"]) == (
                [0, 1],
                [{"reason": LATE, "ranks": [0, 1]}],
            )
            assert of[2, 0]["makespan_us"] is None
            assert of[2, 0]["unplanned_reason"]

    run(scenario())


def test_an_iteration_is_explained(dip: Callable[..., Ran]) -> None:
    async def scenario() -> None:
        async with trained() as server:

            async def explained(*options: object) -> str:
                ran = await in_thread(dip, "status", "job", "--endpoint", server.address, "--iteration", *options)
                assert (ran.code, ran.err) == (0, "")
                return str(ran.out)

            both = await explained(1)
            fell_back, ran_plan = both.split("\n\n")  # first what there is to explain
            assert "Iteration 1 of job, replica 1 of 2:" in fell_back
            assert f"All ranks ran the fixed fallback schedule: {LATE}." in fell_back
            assert "waited 200 ms for its schedule" in fell_back
            assert "They ran the plan." in ran_plan
            assert "than planned (rank 0 was the last to end)." in ran_plan
            assert "The planner has no plan of it: " in await explained(2, "--replica", 0)
            assert "No rank has reported it yet." in await explained(3, "--replica", 0)
            assert "waits for a plan" in await explained(4)
            as_json = json.loads(await explained(1, "--replica", 1, "--json"))
            assert [(told["iteration"], told["replica"]) for told in as_json["iterations"]] == [(1, 1)]

    run(scenario())


def test_some_ranks_and_no_reason_are_told(dip: Callable[..., Ran]) -> None:
    async def scenario() -> None:
        async with planner() as server, client(server) as stub:
            await stub.RegisterJob(register())
            await stub.ReportExecution(report(7, 1, reason=""))
            ran = await in_thread(dip, "status", "job", "--endpoint", server.address, "--iteration", 7)
            assert "never came to the planner" in ran.out
            assert "1 of 2 ranks reported it." in ran.out
            assert "Rank 1 ran the fixed fallback schedule: the agent told no reason." in ran.out
            page = await in_thread(dip, "status", "job", "--endpoint", server.address)
            assert "fell back on rank 1: no reason told; 1 of 2 ranks reported" in page.out

    run(scenario())


def test_what_is_not_there_is_said_with_what_there_is(dip: Callable[..., Ran]) -> None:
    held = HeldPort()  # nobody else takes it once the planner has ended

    async def scenario() -> None:
        async with trained(listen=f"127.0.0.1:{held.number}") as server:
            no_job = await in_thread(dip, "status", "jop", "--endpoint", server.address)
            assert (no_job.code, "knows no job 'jop'; there are job" in no_job.err) == (NO_SUCH_JOB, True)
            no_iteration = await in_thread(dip, "status", "job", "--iteration", 99, "--endpoint", server.address)
            assert (no_iteration.code, "kept are 0 to 4" in no_iteration.err) == (NO_SUCH_JOB, True)
            no_replica = await in_thread(dip, "status", "job", "--replica", 2, "--endpoint", server.address)
            assert (no_replica.code, "from 0 to 1" in no_replica.err) == (BAD_INPUT, True)
            bad_name = await in_thread(dip, "status", "../*", "--endpoint", server.address)
            assert (bad_name.code, "job_id" in bad_name.err) == (BAD_INPUT, True)
        away = await in_thread(dip, "status", "job", "--endpoint", server.address)
        assert away.code == UNREACHABLE

    run(scenario())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--iterations", "65"], "--iterations is 65, must be from 0 to 64"),
        (["--iteration", "-1"], "--iteration is -1, must be 0 or more"),
        (["--iteration", "1", "--watch"], "--watch goes with the newest iterations"),
        (["--replica", "-1"], "--replica is -1"),
    ],
)
def test_bad_options_are_said(dip: Callable[..., Ran], options: list[str], said: str) -> None:
    ran = dip("status", "job", *options)
    assert (ran.code, said in ran.err) == (BAD_INPUT, True)


def test_a_watch_tells_of_iterations_as_they_end_and_outlasts_the_planner(
    dip: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(iteration: int, *ranks: int, planned: int = 9) -> pb.GetJobResponse:
        made = pb.GetJobResponse(
            status=pb.JobStatus(
                job_id="job",
                attempt=1,
                ranks=2,
                replicas=1,
                last_planned_iteration=planned,
                last_reported_iteration=iteration,
            )
        )
        for n in range(iteration + 1):
            status = made.recent.add(iteration=n, state=pb.ITERATION_STATE_PLANNED, makespan_us=1_000, search_ms=4)
            status.ranks.extend(
                pb.RankStatus(rank=rank, measured_us=1_100) for rank in (ranks if n == iteration else [0])
            )
        return made

    answers: list[pb.GetJobResponse | WatchError] = [
        found(0, 0),
        found(0, 0, 1),
        found(1, 0),
        AwayError("the planner is away"),
        NoSuchJobError("it knows none"),
        found(2, 0, 1),
    ]

    def job(*_: object) -> pb.GetJobResponse:
        if not answers:
            raise KeyboardInterrupt
        answer = answers.pop(0)
        if isinstance(answer, WatchError):
            raise answer
        return answer

    monkeypatch.setattr("planner_service.watching.planner.PlannerClient.job", job)
    monkeypatch.setattr(live, "time", SimpleNamespace(sleep=lambda _: None, strftime=time.strftime))
    ran = dip("status", "job", "--watch")
    assert ran.code == 130
    lines = [line.partition(" ")[2] for line in ran.out.splitlines()]
    assert lines[0].startswith("job: planned 9 iterations ahead of what ranks have run; needs iteration 1")
    assert lines[1:] == [
        "iteration 0: planned 1.00 ms, measured 1.10 ms (+10.0%), ran the plan",
        "the planner is away",
        "it knows none",
        "the planner answers again",
        "iteration 1: planned 1.00 ms, measured 1.10 ms (+10.0%), ran the plan; 1 of 2 ranks reported",
        "iteration 2: planned 1.00 ms, measured 1.10 ms (+10.0%), ran the plan",
    ]
