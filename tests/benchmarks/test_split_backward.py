"""Shows that the measurement of split backwards runs and states consistent figures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks.split_backward import main

if TYPE_CHECKING:
    import pytest


def test_figures_are_printed_and_fit_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--layers", "2", "--width", "32", "--heads", "2", "--units", "16", "--repeats", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["halves_over_whole"] == (found["input_us"] + found["weight_us"]) / found["whole_us"]
    assert found["naive_over_whole"] == (found["naive_input_us"] + found["naive_weight_us"]) / found["whole_us"]
    assert 0 < found["between_bytes"] == found["between_over_before"] * found["before_bytes"]
