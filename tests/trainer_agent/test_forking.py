"""Data loaders may fork their workers while a stream is open: no worker crashes, no schedule is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dip.connecting.forking import GRPC_FORK_SUPPORT
from fake_planner import FakePlanner
from pipelines import forking_loader
from pipelines.forking_loader import BATCHES, EPOCHS


def test_data_loader_workers_may_be_forked_while_the_stream_is_open() -> None:
    planner = FakePlanner()
    environment = {name: value for name, value in os.environ.items() if name != GRPC_FORK_SUPPORT}
    try:
        ran = subprocess.run(
            [sys.executable, "-m", forking_loader.__name__, planner.listen()],
            env=environment | {"PYTHONPATH": str(Path(forking_loader.__file__).parents[1])},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    finally:
        planner.stop()
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == f"planned {EPOCHS * BATCHES}, reconnected 0"


@pytest.mark.parametrize(
    ("package", "given", "held"),
    [("trainer_agent", "1", "1"), ("dip.connecting", None, "0"), ("dip.connecting", "1", "1")],
)
def test_grpc_is_kept_from_handling_forks_unless_the_user_says_otherwise(
    package: str, given: str | None, held: str
) -> None:
    script = f"import os, {package}, grpc; print(os.environ[{GRPC_FORK_SUPPORT!r}])"
    environment = {name: value for name, value in os.environ.items() if name != GRPC_FORK_SUPPORT}
    environment |= {} if given is None else {GRPC_FORK_SUPPORT: given}
    ran = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=240, check=True
    )
    assert ran.stdout.strip() == held
