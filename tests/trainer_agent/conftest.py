"""Processes that the tests of the executor run their ranks in, started once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from pipelines.processes import Workers

if TYPE_CHECKING:
    from collections.abc import Iterator

# As ranks do: more threads than idle cores make every small operation wait for the scheduler.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    made = Workers(4)
    yield made
    made.close()
