"""Good schedules in milliseconds: valid, better with more seeds, split or with a reserve only where that can help."""

from __future__ import annotations

from cases import documents, job, request
from dip.partition import default_partition
from hypothesis import HealthCheck, given, settings
from random_work import Instance, instances

from planner_service.search.quick import is_limited, quick_schedule
from planner_service.search.schedule import Schedule

SLOW = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(instances())
def test_it_is_valid_and_no_worse_with_more_seeds(instance: Instance) -> None:
    few, _ = quick_schedule(instance.work, seeds=1)
    many, tried = quick_schedule(instance.work, seeds=6)
    assert many.makespan_us <= few.makespan_us
    assert not instance.faults(Schedule.of(many))
    assert tried >= 6


def of_memory(limit: int) -> Instance:
    asked = request(job(ranks=2, memory_bytes=[limit]), documents(4))
    asked.partition.CopyFrom(default_partition(asked.job))
    return Instance.of(asked)


def test_reserves_are_tried_only_where_memory_is_short() -> None:
    ample, short = of_memory(1 << 40), of_memory(12_000_000)
    assert not is_limited(ample.graph())
    assert is_limited(short.graph())
    assert quick_schedule(ample.work, seeds=2)[1] < quick_schedule(short.work, seeds=2)[1]


def test_less_memory_makes_nothing_shorter() -> None:
    lengths = [
        quick_schedule(of_memory(limit).work, seeds=6)[0].makespan_us for limit in (1 << 40, 14_000_000, 11_500_000)
    ]
    assert lengths[0] <= min(lengths[1:])
