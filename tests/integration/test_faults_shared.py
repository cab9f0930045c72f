"""Faults at random moments, two planners on one Redis: whatever must hold of training and its plans does.

The short version of ``python -m benchmarks.faults``, which says what that is.
"""

from __future__ import annotations

import json

import pytest
from redis_cases import needs_redis

from benchmarks.faults.__main__ import main
from benchmarks.faults.campaign import SHORT


@needs_redis
@pytest.mark.timeout(900)
def test_faults_of_planners_redis_network_and_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--short"])
    result = json.loads(capsys.readouterr().out)
    assert result["violations"] == []
    assert code == 0
    assert result["iterations"] >= SHORT.iterations
    assert result["starts"] == 2
    assert result["executions"] >= 8 * result["iterations"]
    assert {kind: len(came_to["recovery_s"]) for kind, came_to in result["faults"].items()} == dict.fromkeys(
        SHORT.kinds, SHORT.rounds
    )
