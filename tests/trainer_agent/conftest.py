"""Processes that the tests of the executor run their ranks in, started once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from pipelines.processes import Workers
from waiting import PATIENCE_S

import trainer_agent.planner_link
from trainer_agent.client import PlannerClient

if TYPE_CHECKING:
    from collections.abc import Iterator

# As ranks do: more threads than idle cores make every small operation wait for the scheduler.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calls that are answered, and threads that end, take what a busy machine makes them take."""
    for call in (PlannerClient.submit_batch, PlannerClient.report_execution, PlannerClient.get_job):
        monkeypatch.setitem(call.__kwdefaults__, "timeout_s", PATIENCE_S)
    monkeypatch.setitem(PlannerClient.register_job.__kwdefaults__, "timeout_s", PATIENCE_S)
    monkeypatch.setattr(trainer_agent.planner_link, "JOIN_S", PATIENCE_S)


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    made = Workers(4)
    yield made
    made.close()
