"""What tests of the planner share: the gate at which scripted solves wait."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import scripted_engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what lets the solves that wait at the gate go on."""
    fifo = tmp_path / "gate"
    os.mkfifo(fifo)
    monkeypatch.setenv(scripted_engine.GATE, str(fifo))
    return lambda: fifo.write_text("go")
