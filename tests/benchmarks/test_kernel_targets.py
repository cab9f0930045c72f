"""Shows that kernels' targets are compared on the same searches, each with the code of its own target."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks.kernel_targets import main, ratios
from planner_service.kernel_cache import CACHE, TARGET
from planner_service.warmup import compile_kernels

if TYPE_CHECKING:
    import pytest


def test_a_target_is_measured_round_by_round(capsys: pytest.CaptureFixture[str]) -> None:
    compile_kernels()
    size = ["--microbatches", "2", "--evaluations", "50", "--rounds", "2"]
    assert main(["--targets", TARGET.cpu, "--cache", str(CACHE.parent), *size]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert list(measured["targets"]) == [TARGET.cpu]
    found = measured["targets"][TARGET.cpu]
    assert found["same_plans"]
    assert found["search_ms"] > 0
    assert found["ratio"] == {"search_ms": 1.0, "decode_us": 1.0}


def test_ratios_are_of_the_same_round() -> None:
    assert ratios("ms", [{"ms": 3.0}, {"ms": 20.0}], [{"ms": 2.0}, {"ms": 10.0}]) == [1.5, 2.0]
