"""Shows that the agent's log records say by attributes which process of which job they are from."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import cases
import pytest
import torch.distributed as dist

import trainer_agent
from trainer_agent import AgentSettings, Mesh, TrainerAgent, about
from trainer_agent.stats import FallbackLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(about._about, "place", {})


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[Mesh]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield Mesh.create(timeout_s=240)
    dist.destroy_process_group()


def told(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name.startswith("dip_")}


@pytest.mark.usefixtures("_as_before")
def test_records_of_a_process_that_is_a_part_of_a_job_say_so(mesh: Mesh, caplog: pytest.LogCaptureFixture) -> None:
    settings = AgentSettings(endpoints=None, job_id="job")
    agent = TrainerAgent.connect(cases.job(ranks=1), mesh, settings=settings)
    agent.close()
    FallbackLog().note(7, "no planner")
    (record,) = [record for record in caplog.records if record.name == "trainer_agent.stats"]
    place = {"dip_job": "job", "dip_attempt": agent.attempt, "dip_replica": 0, "dip_rank": 0}
    assert told(record) == {**place, "dip_iteration": 7}
    assert record.getMessage() == "iteration 7 ran the fixed fallback schedule: no planner"


@pytest.mark.usefixtures("_as_before")
def test_a_line_before_there_is_a_job_is_written_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    about.logger("trainer_agent.of_test").warning("early")
    (record,) = caplog.records
    assert told(record) == {}


def test_every_module_of_the_agent_takes_part() -> None:
    for name, log in logging.root.manager.loggerDict.items():
        is_ours = name.startswith(f"{trainer_agent.__name__}.") and not name.endswith("of_test")
        if is_ours and isinstance(log, logging.Logger):
            assert about._about in log.filters, name
