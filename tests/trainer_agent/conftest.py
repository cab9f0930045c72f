"""Processes that the tests of the executor run their ranks in, started once; and an agent that nothing hurries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from pipelines.processes import Workers
from unhurried import unhurry

if TYPE_CHECKING:
    from collections.abc import Iterator

# As ranks do: more threads than idle cores make every small operation wait for the scheduler.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    unhurry(monkeypatch.setattr)


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    made = Workers(4)
    yield made
    made.close()
