"""What tests of the planner share: the gate at which scripted solves wait, patience, and no wishes of this user's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import scripted_engine
from waiting import PATIENCE_S

from planner_service.logs import child_output
from planner_service.pool import pool, process

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# What a user may have set for planners, terminals and proxies, and tests would otherwise follow.
_WISHES = ("DIP_", "OTEL_", "COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_")
_KEPT = ("DIP_REDIS_SERVER",)


@pytest.fixture(autouse=True)
def _undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what this user has set, and wait for ends of processes as long as a busy machine needs."""
    for name in os.environ:
        if (name.startswith(_WISHES) and name not in _KEPT) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(process, "_EXIT_LIMIT_S", PATIENCE_S)
    monkeypatch.setattr(pool, "HURRY_EVERY_S", 0.0)  # replacements that gave way would take minutes to start
    monkeypatch.setattr(pool, "FALLBACK_LIMIT_S", PATIENCE_S)
    monkeypatch.setattr(child_output, "_LAST_WORDS_S", PATIENCE_S)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what lets the solves that wait at the gate go on."""
    fifo = tmp_path / "gate"
    os.mkfifo(fifo)
    monkeypatch.setenv(scripted_engine.GATE, str(fifo))
    return lambda: fifo.write_text("go")
