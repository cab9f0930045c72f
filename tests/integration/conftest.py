"""Planners and training runs of the tests, ended with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from integration.harness import Planner, Ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def mortal_planner(tmp_path: Path) -> Iterator[Planner]:
    """A planner that the test starts, and does with it what it likes."""
    planner = Planner(tmp_path)
    yield planner
    planner.close()


@pytest.fixture(scope="session")
def steady_planner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planner]:
    """A planner that serves all tests that leave it alone."""
    planner = Planner(tmp_path_factory.mktemp("planner")).start()
    yield planner
    planner.close()


@pytest.fixture
def start_ranks(tmp_path: Path) -> Iterator[Callable[..., Ranks]]:
    """Start a training run: one rank for each endpoint."""
    started: list[Ranks] = []

    def start(*endpoints: str, **how: Any) -> Ranks:
        started.append(Ranks(tmp_path / f"run{len(started)}", endpoints, **how))
        return started[-1]

    yield start
    for ranks in started:
        ranks.close()
