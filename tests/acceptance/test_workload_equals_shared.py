"""Shows that ``dip workload`` writes the reference workloads, byte for byte."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from planner_service.check.setups import SETUPS
from planner_service.check.workload import MIXES, workload_json
from planner_service.cli import main

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


def test_the_same_set_ups_are_known(peer_workloads: ModuleType) -> None:
    assert list(SETUPS) == list(peer_workloads.CONFIGS)


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("config", SETUPS)
def test_requests_are_equal(peer_workloads: ModuleType, config: str, mix: str) -> None:
    for seed in (0, 1, 12345, -7):
        for microbatches in (1, 4, 16, 64):
            ours = json.dumps(workload_json(config, microbatches, seed, mix))
            assert ours == json.dumps(peer_workloads.request(config, microbatches, seed, mix))


def test_files_are_equal(peer_workloads: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["vlm-m", "--microbatches", "5", "--seed", "3", "--mix", "documents", "--out"]
    assert main(["workload", *arguments, str(tmp_path / "ours.json")]) == 0
    monkeypatch.setattr(sys, "argv", ["make.py", *arguments, str(tmp_path / "theirs.json")])
    peer_workloads.main()
    assert (tmp_path / "ours.json").read_bytes() == (tmp_path / "theirs.json").read_bytes()
