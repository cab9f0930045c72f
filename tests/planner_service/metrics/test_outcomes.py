"""Shows that each outcome of a batch, and each solver process that is lost, is counted by why."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import scripted_engine
from dip.planner.v1 import planner_pb2 as pb
from metric_samples import value
from overruns import extend_limits_until_a_plan_is_found
from serving import (
    LONG_MS,
    batch,
    client,
    planner,
    refusal,
    register,
    report,
    run,
    spec,
    stream,
    submit,
    take,
    worker_pids,
)

if TYPE_CHECKING:
    from planner_service.server.lifecycle import PlannerServer

OUTCOMES = ("search", "interrupted", "fixed", "remembered", "late", "refused", "failed", "abandoned")
REASONS = ("overran", "died", "cancelled", "unready")


def outcomes() -> dict[str, float]:
    return {outcome: value("dip_settled_batches_total", outcome=outcome) for outcome in OUTCOMES}


def lost() -> dict[str, float]:
    return {reason: value("dip_worker_restarts_total", reason=reason) for reason in REASONS}


def solvers() -> dict[str, float]:
    return {name: value(name) for name in ("dip_workers", "dip_ready_workers", "dip_busy_workers")}


def grown(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    return {name: now[name] - before[name] for name in now if now[name] != before[name]}


@pytest.mark.parametrize(
    ("script", "outcome", "reasons"),
    [
        (400, "search", {}),
        (scripted_engine.CANNOT_FIT, "refused", {}),
        (scripted_engine.DIE, "fixed", {"died": 1}),
        (scripted_engine.DIE_WITH_PLAN, "interrupted", {"died": 1}),
        (scripted_engine.DIE_ALWAYS, "failed", {"died": 2}),
        (scripted_engine.HANG, "fixed", {"overran": 1}),
        (scripted_engine.HANG_WITH_PLAN, "interrupted", {"overran": 1}),
        (scripted_engine.RAISE, "fixed", {"died": 1}),
    ],
)
def test_batch_is_counted_by_what_became_of_it(
    script: int, outcome: str, reasons: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {"solve_grace_ms": 100} if script in (scripted_engine.HANG, scripted_engine.HANG_WITH_PLAN) else {}

    async def scenario() -> None:
        async with planner(**short) as server, client(server) as stub:
            if script == scripted_engine.HANG_WITH_PLAN:
                extend_limits_until_a_plan_is_found(monkeypatch, server)
            await stub.RegisterJob(register())
            before, lost_before = outcomes(), lost()
            timed = value("dip_batch_duration_seconds_count")
            await stub.SubmitBatch(submit(0, script))
            await take(stub.StreamSchedules(stream()), 1)
            while outcomes() == before:
                await asyncio.sleep(0.001)
            assert grown(before, outcomes()) == {outcome: 1}
            while sum(grown(lost_before, lost()).values()) < sum(reasons.values()):
                await asyncio.sleep(0.001)  # one that gets little of a core is killed later
            assert grown(lost_before, lost()) == reasons
            assert value("dip_batch_duration_seconds_count") == timed + 1

    run(scenario())


def test_batch_that_comes_after_its_time_is_late() -> None:
    async def scenario() -> None:
        async with planner() as server, client(server) as stub:
            await stub.RegisterJob(register())
            before = outcomes()
            await stub.ReportExecution(report(5))
            await stub.SubmitBatch(submit(5))
            await stub.SubmitBatch(submit(5))  # known by now
            assert grown(before, outcomes()) == {"late": 1}

    run(scenario())


def test_batches_that_are_overtaken_are_late() -> None:
    async def scenario() -> None:
        async with planner() as server, client(server) as stub:
            await stub.RegisterJob(register(budget_ms=LONG_MS))
            await _ready(server)
            before = outcomes()
            for iteration in (0, 1, 2):
                await stub.SubmitBatch(submit(iteration, scripted_engine.HANG))
            await stub.ReportExecution(report(1))
            assert grown(before, outcomes()) == {"late": 2}

    run(scenario())


def test_solver_that_nobody_waits_for_is_cancelled() -> None:
    async def scenario() -> None:
        async with planner() as server, client(server) as stub:
            await _ready(server)
            before, were_busy = lost(), value("dip_busy_workers")
            call = stub.Plan(pb.PlanRequest(job=spec(budget_ms=LONG_MS), batch=batch(scripted_engine.HANG)))
            while value("dip_busy_workers") == were_busy:
                await asyncio.sleep(0.001)
            call.cancel()
            while lost() == before:
                await asyncio.sleep(0.001)
            assert grown(before, lost()) == {"cancelled": 1}

    run(scenario())


def test_solvers_that_do_not_start_are_unready() -> None:
    async def scenario() -> None:
        before, were_ready = lost(), value("dip_ready_workers")
        async with planner("no.such.engine") as server, client(server) as stub:
            await refusal(stub.RegisterJob(register()))
            assert value("dip_ready_workers") == were_ready
        assert grown(before, lost())["unready"] >= 3

    run(scenario())


def test_solvers_are_counted_as_long_as_they_are_there() -> None:
    async def scenario() -> None:
        before = solvers()
        async with planner(search_workers=2) as server:
            while server.idle_workers < 2:
                await asyncio.sleep(0.001)
            assert len(worker_pids()) == 2
            assert grown(before, solvers()) == {"dip_workers": 2, "dip_ready_workers": 2}
        assert solvers() == before

    run(scenario())


async def _ready(server: PlannerServer) -> None:
    while not server.idle_workers:
        await asyncio.sleep(0.001)
