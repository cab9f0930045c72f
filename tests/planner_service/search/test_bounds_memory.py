"""What memory costs at least: worked out by hand, and never more than the best of all schedules within it."""

from __future__ import annotations

import random
from itertools import count
from typing import TYPE_CHECKING

from dip.planner.v1 import planner_pb2 as pb
from exact_memory import shortest_within_memory_us
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances, random_guide
from tiny_batches import tiny_request, work_of

from planner_service.search.bounds import improved_bound_us, lower_bound_us
from planner_service.search.bounds.memory import memory_bound_us
from planner_service.search.bounds.tasks import fastest_tasks
from planner_service.search.decoders import decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dip.work import Work

SLOW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
INSTANCES = 60
MOST_TASKS = 10
LONGER = 20
"""By what times are multiplied, so that rounding matters less."""


def four_through_two_ranks(*, room: int, lean: bool) -> Work:
    """Four microbatches, 1,000 us forward and 2,000 back on each of two ranks; a lean layer takes 2,000 more."""
    point = pb.CostPoint(
        units=1, forward_us=1000, backward_input_us=1000, backward_weight_us=1000, activation_bytes=100
    )
    cost = pb.LayerCost(points=[point])
    if lean:
        cost.strategies.add(name="lean").points.add().CopyFrom(point)
        cost.strategies[0].points[0].backward_input_us += 2000
        cost.strategies[0].points[0].activation_bytes = 40
    request = pb.PlanRequest()
    request.job.model.modules.add(name="m", layers=[pb.LayerRun(count=2, cost=cost)])
    request.job.cluster.ranks = 2
    request.job.cluster.memory_bytes.append(room)
    for _ in range(4):
        request.batch.microbatches.add().samples.add().instances["m"].units.append(1)
    for rank in range(2):
        request.partition.chunks.add(module="m", index=rank, rank=rank, first_layer=rank, num_layers=1)
    return work_of(request)


def bound_of(work: Work, incumbent_us: int = 1 << 40) -> int:
    return memory_bound_us(work, fastest_tasks(work), incumbent_us=incumbent_us)


def test_room_for_one_makes_all_wait_for_each_other() -> None:
    """Rank 0 holds each microbatch through both forwards and both backwards: 6,000 us, one after another."""
    assert bound_of(four_through_two_ranks(room=100, lean=False)) == 4 * 6000


def test_lean_layers_buy_room_with_time() -> None:
    """Rank 0 has T times 100 for four times 6,000 times 100; a lean layer saves 6,000 times 60 for 2,000 us.

    So T is at least 12,000 + 2,000 (2,400,000 - 100 T) / 360,000, less what rounding may be: 16,277.97.
    """
    work = four_through_two_ranks(room=100, lean=True)
    assert bound_of(work) == 16_278
    assert improved_bound_us(work, incumbent_us=1 << 40) >= 16_278


def test_room_enough_costs_nothing() -> None:
    work = four_through_two_ranks(room=4 * 101, lean=True)
    assert bound_of(work) <= lower_bound_us(work)
    assert bound_of(four_through_two_ranks(room=0, lean=True)) == 0


def test_it_goes_no_further_than_the_incumbent() -> None:
    assert bound_of(four_through_two_ranks(room=100, lean=False), incumbent_us=20_000) == 20_000


@SLOW
@given(instances(limited=True), st.integers(0, 100))
def test_no_schedule_of_a_decoder_beats_it(instance: Instance, seed: int) -> None:
    graph = instance.graph()
    makespan = decode(graph, random_guide(graph, seed)).makespan_us
    assert bound_of(instance.work) <= makespan


def limited_work(seed: int) -> Iterator[Work]:
    """Stage tasks of tiny batches whose layers keep something, on ranks that have little room, or less, or no limit."""
    for number in count():
        rng = random.Random(seed * 1_000_003 + number)
        request = tiny_request(rng)
        for module in request.job.model.modules:
            for run in module.layers:
                _keep_something(rng, run.cost)
        ranks = request.job.cluster.ranks
        request.job.cluster.memory_bytes.extend(rng.choice([0, rng.randint(3, 20)]) for _ in range(ranks))
        work = work_of(request)
        tasks = sum(1 + work.has_backward(cell) for cell in range(work.num_cells))
        if tasks <= MOST_TASKS and any(request.job.cluster.memory_bytes):
            yield work


def _keep_something(rng: random.Random, cost: pb.LayerCost) -> None:
    """Longer times, bytes kept, and often a way that keeps less."""
    store = cost.points[0]
    store.activation_bytes, store.split_activation_bytes = rng.randint(1, 9), rng.choice([0, 0, rng.randint(0, 9)])
    if rng.random() < 0.6:
        lean = (cost.strategies or [cost.strategies.add(name="lean", points=[store])])[0].points[0]
        lean.activation_bytes = rng.randint(0, store.activation_bytes)
        lean.split_activation_bytes = rng.choice([0, store.activation_bytes])
        lean.backward_input_us = store.backward_input_us + rng.randint(0, 9)
    for point in (store, *(strategy.points[0] for strategy in cost.strategies)):
        point.forward_us *= LONGER
        point.backward_input_us *= LONGER
        point.backward_weight_us *= LONGER


def test_no_schedule_within_memory_beats_it() -> None:
    checked = higher = 0
    for work in limited_work(3):
        shortest = shortest_within_memory_us(work)
        if shortest is None:
            continue
        assert bound_of(work, 2 * shortest) <= shortest
        assert improved_bound_us(work, incumbent_us=2 * shortest) <= shortest
        higher += bound_of(work, 2 * shortest) > lower_bound_us(work)
        checked += 1
        if checked == INSTANCES:
            break
    assert higher >= 3  # a bound that ignored memory would pass the rest
