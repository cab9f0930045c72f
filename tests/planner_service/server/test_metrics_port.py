"""Shows where the planner's metrics are had, and what is said where they cannot be."""

from __future__ import annotations

import asyncio
import urllib.request

import pytest
from serving import FREE, ClosingStore, planner, run
from waiting import PATIENCE_S

from benchmarks.held_port import HeldPort
from planner_service.server.lifecycle import PlannerServer
from planner_service.server.listening import ListenError
from planner_service.settings import Settings

ANYWHERE = "127.0.0.1:0"


def read(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
        text: str = answer.read().decode()
    return text


def test_planner_serves_its_metrics_as_long_as_it_serves() -> None:
    async def scenario() -> None:
        held = HeldPort()  # nobody else's afterwards
        async with planner(metrics_listen=f"127.0.0.1:{held.number}") as server:
            assert "\ndip_store_available 1.0\n" in await asyncio.to_thread(read, server.metrics_address)
        with pytest.raises(OSError, match="refused"):
            await asyncio.to_thread(read, server.metrics_address)
        held.release()

    run(scenario())


def test_any_free_port_is_told() -> None:
    async def scenario() -> None:
        async with planner(metrics_listen=ANYWHERE) as server:
            assert not server.metrics_address.endswith(":0")

    run(scenario())


def test_metrics_can_be_left_out() -> None:
    async def scenario() -> None:
        async with planner(metrics_listen="off") as server:
            assert server.metrics_address == "off"
            names = {task.get_name() for task in asyncio.all_tasks()}
            assert not {name for name in names if "lag" in name or "metrics" in name}

    run(scenario())


def test_port_in_use_names_the_setting_and_what_to_do() -> None:
    async def scenario() -> None:
        store = ClosingStore()
        async with planner(metrics_listen=ANYWHERE) as other:
            settings = Settings(**FREE | {"metrics_listen": other.metrics_address})
            with pytest.raises(ListenError) as caught:
                await PlannerServer(settings, store=store).start()
        assert str(caught.value) == (
            f"cannot listen on {other.metrics_address}: another process listens there (another planner, perhaps); "
            "set DIP_METRICS_LISTEN to a free address, 127.0.0.1:0 takes any free port"
        )
        assert store.closed

    run(scenario())


def test_host_that_is_not_here_is_said() -> None:
    async def scenario() -> None:
        with pytest.raises(ListenError, match=r"^cannot listen on 192\.0\.2\.1:9464: .*DIP_METRICS_LISTEN"):
            await PlannerServer(Settings(**FREE | {"metrics_listen": "192.0.2.1:9464"})).start()

    run(scenario())
