"""Shows the dual queue's rule on hand-made cases, and that memory closes queues without an order that cannot run."""

from __future__ import annotations

import numpy as np
import pytest
from cases import documents, job, module, request
from dip.fallback import groups_fit
from dip.lowering import peak_bytes, time_order
from dip.partition import default_partition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances

from planner_service.baselines.paper.arrays import NEVER, make_desk
from planner_service.baselines.paper.candidates import MOST, Candidates
from planner_service.baselines.paper.dual_queue import ADMIT, CLOSE, interleave
from planner_service.baselines.paper.problem import Base
from planner_service.baselines.paper.search import orders_of

SLOW = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


def texts(ranks: int, many: int, memory: int = 0) -> Base:
    """One module of a layer a rank, equal microbatches, each an item."""
    asked = request(job([module("m", ranks)], ranks=ranks, memory_bytes=[memory]), [[{"m": [100]}]] * many)
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    work = Instance.of(asked).work
    return Base.of(work, Candidates.of(work))


def decoded(base: Base, order: list[int], rule: int = CLOSE) -> list[str]:
    """Each rank's tasks, by microbatch."""
    desk = make_desk(base.problem)
    assert interleave(base.problem, desk, np.array(order), rule) < NEVER
    part = base.work.cell_part
    return [
        " ".join(f"{phase.name[0]}{part[cell]}" for phase, cell in of_rank) for of_rank in orders_of(base, desk.start)
    ]


def test_with_both_kinds_ready_a_rank_alternates() -> None:
    assert decoded(texts(1, 4), [0, 1, 2, 3]) == ["F0 B0 F1 B1 F2 B2 F3 B3"]


def test_items_go_by_their_priority() -> None:
    assert decoded(texts(1, 4), [2, 0, 3, 1]) == ["F2 B2 F0 B0 F3 B3 F1 B1"]


def test_a_rank_takes_what_can_start_first_rather_than_wait_for_its_turn() -> None:
    first, last = decoded(texts(2, 3), [0, 1, 2])
    assert last == "F0 B0 F1 B1 F2 B2"
    assert first.startswith("F0 F1 ")  # no backward is there yet: it does not wait for one
    assert first.endswith("B2")


def test_a_full_rank_closes_its_forward_queue_until_a_backward_frees_it() -> None:
    free = texts(2, 4)
    size = int(free.problem.kept[0])
    static = free.work.static_bytes[0]
    assert decoded(free, [0, 1, 2, 3])[0].startswith("F0 F1 ")
    for rule in (CLOSE, ADMIT):
        assert decoded(texts(2, 4, static + size), [0, 1, 2, 3], rule) == ["F0 B0 F1 B1 F2 B2 F3 B3"] * 2


def test_a_rank_that_closes_can_get_stuck_and_one_that_admits_cannot() -> None:
    """Two modules on one rank: room for one microbatch, and the first module of both is urgent."""
    asked = request(
        job([module("a", 1), module("b", 1, inputs=["a"])], ranks=1, memory_bytes=[0]), [[{"a": [64], "b": [64]}]] * 2
    )
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    free = Instance.of(asked).work
    size = free.cost(0).kept_bytes
    asked.job.cluster.memory_bytes[0] = free.static_bytes[0] + 2 * size
    work = Instance.of(asked).work
    base = Base.of(work, Candidates.of(work))
    desk = make_desk(base.problem)
    both_first = np.array([0, 2, 1, 3])
    assert interleave(base.problem, desk, both_first, CLOSE) == NEVER
    assert interleave(base.problem, desk, both_first, ADMIT) < NEVER


@SLOW
@given(instances(), st.integers(0, 1000), st.integers(0, MOST - 1))
def test_any_order_gives_a_schedule_that_is_as_early_as_its_order_and_fits(
    instance: Instance, seed: int, level: int
) -> None:
    work = instance.work
    candidates = Candidates.of(work)
    base = Base.of(work, candidates)
    chosen = candidates.at_level(level)
    problem = base.with_ways(chosen)
    desk = make_desk(problem)
    order = np.random.default_rng(seed).permutation(problem.num_items)
    ways = candidates.ways_of(chosen)
    for rule in (CLOSE, ADMIT):
        makespan = interleave(problem, desk, order, rule)
        if makespan == NEVER:
            assert rule == CLOSE or level < MOST - 1
            continue
        orders = orders_of(base, desk.start)
        assert time_order(work, orders, ways).makespan_us == makespan
        limits = work.job.memory_bytes
        for peak, limit in zip(peak_bytes(work, orders, ways), limits, strict=True):
            assert not limit or peak <= limit


@pytest.mark.parametrize("spare", [0, 1, 1000, 50_000])
def test_admitting_needs_room_for_one_microbatch_alone_to_the_byte(spare: int) -> None:
    asked = request(job(ranks=3, memory_bytes=[1 << 40]), documents(6))
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    work = Instance.of(asked).work
    lean = Base.of(work, Candidates.of(work))
    needs = lean.with_ways(lean.candidates.at_level(MOST - 1)).need.max(axis=0)
    worst = max(static + int(need) for static, need in zip(work.static_bytes, needs, strict=True))
    asked.job.cluster.memory_bytes[0] = worst + spare
    work = Instance.of(asked).work
    assert groups_fit(work, [worst + spare - static for static in work.static_bytes])
    base = Base.of(work, Candidates.of(work))
    problem = base.with_ways(base.candidates.at_level(MOST - 1))
    desk = make_desk(problem)
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(problem.num_items)
        assert interleave(problem, desk, order, ADMIT) < NEVER
