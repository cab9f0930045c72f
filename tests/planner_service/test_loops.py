"""Shows that a task that must not end is not missed in silence, and that what ends it on purpose is no failure."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from serving import run

from planner_service.loops import start_loop, stop_where_a_loop_fails

if TYPE_CHECKING:
    from collections.abc import Awaitable


async def ends(work: Awaitable[None]) -> None:
    await work


async def fails() -> None:
    await asyncio.sleep(0)
    raise LookupError("nobody foresaw it")


def test_failure_stops_the_process_and_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        stopped = asyncio.Event()
        stop_where_a_loop_fails(stopped.set)
        start_loop(fails(), "dispatch")
        await stopped.wait()

    run(scenario())
    (record,) = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert "'dispatch'" in record.getMessage()
    assert "nobody foresaw it" in str(record.exc_info)


def test_cancellation_and_a_normal_end_stop_nothing() -> None:
    async def scenario() -> None:
        stop_where_a_loop_fails(lambda: pytest.fail("nothing failed"))
        waits = start_loop(ends(asyncio.sleep(60)), "waits")
        await start_loop(ends(asyncio.sleep(0)), "ends")
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)

    run(scenario())


def test_other_errors_are_handled_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        stop_where_a_loop_fails(lambda: pytest.fail("no loop failed"))
        asyncio.get_running_loop().call_exception_handler({"message": "something else"})

    run(scenario())
    assert "something else" in caplog.text
