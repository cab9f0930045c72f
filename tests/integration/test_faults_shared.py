"""Faults of each important kind at random moments, two planners on one Redis: nothing that must hold is violated.

The short version of ``python -m benchmarks.faults``, which says what must hold.
"""

from __future__ import annotations

import pytest

from benchmarks.faults.campaign import Campaign, run
from benchmarks.redis_server import server_programs

KINDS = ("planner_killed", "planner_stopped", "redis_killed", "redis_emptied", "network_cut", "agents_killed")
ITERATIONS = 25


@pytest.mark.skipif(not server_programs(), reason="no Redis server on this machine")
@pytest.mark.timeout(900)
def test_training_survives_faults_of_planners_redis_network_and_ranks() -> None:
    campaign = Campaign(
        iterations=ITERATIONS,
        rounds=1,
        kinds=KINDS,
        seed=0,
        batch_ms=250,
        budget_ms=40,
        haste=4.0,
        partitions=False,
    )
    result = run(campaign)
    assert result["violations"] == []
    assert result["iterations"] >= ITERATIONS
    assert result["starts"] == 2
    assert [len(result["faults"][kind]["recovery_s"]) for kind in KINDS] == [1] * len(KINDS)
