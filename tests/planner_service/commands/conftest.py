"""A ``dip`` that runs in this process, for the tests of its commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from waiting import PATIENCE_S

from planner_service.cli import main
from planner_service.commands import health
from planner_service.watching.planner import PlannerClient

if TYPE_CHECKING:
    from collections.abc import Callable


class Ran(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture
def dip(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Return a function that runs ``dip`` with its arguments; it waits for planners as long as a test does."""
    monkeypatch.setattr(health, "TIMEOUT_S", PATIENCE_S)
    monkeypatch.setitem(PlannerClient.__init__.__kwdefaults__, "timeout_s", PATIENCE_S)

    def run(*arguments: object) -> Ran:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as stopped:  # argparse
            code = int(stopped.code or 0)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run
