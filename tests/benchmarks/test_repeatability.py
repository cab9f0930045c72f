"""Shows that one request gives one digest on one core and on two, and that memory is read as often as asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks import repeatability

if TYPE_CHECKING:
    import pytest


def test_a_few_runs_and_plans(capsys: pytest.CaptureFixture[str]) -> None:
    assert repeatability.main(["--runs", "4", "--plans", "20", "--evaluations", "60"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["different_digests"] == 1
    assert [int(number) for number in result["resident_mib"]] == list(range(2, 21, 2))
    assert all(mib > 0 for mib in result["resident_mib"].values())
