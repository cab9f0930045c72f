"""Shows that streams which clients cancel, or leave as they die, are let go of, and that idle ones outlive pings."""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING

from benchmarks.abandoned_streams.__main__ import main
from benchmarks.abandoned_streams.site import StreamSite, channel, open_streams
from benchmarks.planner_process import PlannerProcess
from planner_service import settings as names

if TYPE_CHECKING:
    import pytest


def test_streams_left_in_every_way_are_let_go_of(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "--streams 40 --wave 4 --every 20 --silent 0 --idle-s 0.2 --least-pings 2 --ping-ms 1000"
    code = main(arguments.split())
    result = json.loads(capsys.readouterr().out)
    assert code == 0, result
    for way in ("cancelled", "killed"):
        assert [int(left) for left in result[way]["resident_mib"]] == [0, 20, 40]
        assert math.isfinite(result[way]["counted_for_s"])
    assert result["idle"]["pings"] >= 2
    assert (result["refused"], result["still_counted"]) == (0, 0)


def test_streams_that_are_open_are_counted_and_refuse_the_next() -> None:
    async def scenario(address: str) -> None:
        site = StreamSite(address, most=4, patience_s=0.0)
        await site.register()
        async with channel(address) as stub:
            held = await open_streams(stub, 3)
            assert await site.counted() == 3
            await site.cancel_wave(3)
            assert site.refused in (2, 3)  # it may not have let go yet of the one that was opened for counting
            for stream in held:
                stream.cancel()
            assert math.isfinite(await site.until_none_counted())

    with PlannerProcess({names.MAX_STREAMS: "4"}) as planner:
        asyncio.run(scenario(planner.address))
