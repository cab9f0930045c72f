"""Shows that durations other than planned take their way through the schedule, and meet different plans alike."""

from __future__ import annotations

import corners
import pytest
from dip.fallback import fallback_plan
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from tiny_plan import MAKESPAN_US, tiny_plan, tiny_request

from planner_service.simulate import lognormal_noise, simulate, slow_ranks


def test_a_slow_rank_delays_what_waits_for_it() -> None:
    found = simulate(tiny_request(), tiny_plan(), durations=slow_ranks([3.0, 1.0]))
    # forwards end at 90, the second result is there at 99, backwards take 270 from 266 on
    assert found.makespan_us == 99 + 160 + 7 + 270
    assert simulate(tiny_request(), tiny_plan(), durations=slow_ranks([1, 1])).makespan_us == MAKESPAN_US


def test_hops_can_take_longer_too() -> None:
    def slow_hops(_rank: int, action: pb.Action, planned_us: int) -> int:
        return planned_us + 100 * (action.kind >= pb.ACTION_KIND_SEND_ACTIVATION)

    # The second image's hop, then the first gradient's.
    assert simulate(tiny_request(), tiny_plan(), durations=slow_hops).makespan_us == MAKESPAN_US + 200


def test_each_duration_is_asked_for_once_with_its_planned_time() -> None:
    asked: list[tuple[int, int, int]] = []

    def noted(rank: int, action: pb.Action, planned_us: int) -> int:
        asked.append((rank, action.kind, planned_us))
        assert planned_us == action.end_us - action.start_us
        return planned_us

    simulate(tiny_request(), tiny_plan(), durations=noted)
    assert len(asked) == 6 + 4


def test_a_negative_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="rank 0, action 0: duration is -1, must be at least 0"):
        simulate(tiny_request(), tiny_plan(), durations=lambda *_: -1)


def test_noise_depends_on_its_seed_and_not_on_the_order() -> None:
    request = corners.seven_microbatches_on_four_ranks()
    plan = fallback_plan(request.job, default_partition(request.job, request.batch), request.batch)
    planned = simulate(request, plan)
    noisy = simulate(request, plan, durations=lognormal_noise(0.2, 1))
    assert noisy == simulate(request, plan, durations=lognormal_noise(0.2, 1))
    assert noisy.makespan_us != simulate(request, plan, durations=lognormal_noise(0.2, 2)).makespan_us
    assert simulate(request, plan, durations=lognormal_noise(0.0, 1)) == planned
    assert noisy.peak_bytes == planned.peak_bytes
    pairs = zip(noisy.tasks, planned.tasks, strict=True)
    took = sorted((real.end_us - real.start_us) / (due.end_us - due.start_us) for real, due in pairs)
    assert took[0] < 0.9 < 1.1 < took[-1]
    assert took[len(took) // 2] == pytest.approx(1.0, abs=0.1)
