"""Shows that the independent checker accepts plans and fallbacks of all set-ups, sizes, mixes and memory limits.

``dip check`` has to agree, also about mutations of the small ones. With 16 microbatches each set-up and limit gets two
of the mixes, with 64 one of them, in turn, unless ``DIP_ACCEPTANCE`` is ``full``: the whole matrix takes minutes.
"""

from __future__ import annotations

import os
import random
from functools import cache
from typing import TYPE_CHECKING

import pytest
from dip.fallback import fallback_plan
from mutations import PLAN_MUTATIONS

from planner_service.check import check_plan
from planner_service.check.workload import MIXES, workload_request
from planner_service.planning import make_partition, make_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dip.planner.v1 import planner_pb2 as pb

    from .conftest import PeerChecker

ACCEPTANCE = "DIP_ACCEPTANCE"
CONFIGS = ("vlm-s", "vlm-m", "vlm-l", "t2v-s", "t2v-l")
MICROBATCHES = {4: 4, 16: 2, 64: 1}
"""Sizes of a batch, each with the number of mixes that it is tried with."""
MEMORY = {"memory as given": 1.0, "no limit": 0.0, "60% of the memory": 0.6}
SEARCH_MS = 50
MUTATIONS = ("move_action", "drop_action", "double_action", "shorten_action", "swap_transfers", "change_bytes")
"""Two of them for each plan of the smallest batches."""

Cell = tuple[str, int, str, str]


def cells() -> Iterator[Cell]:
    for c, config in enumerate(CONFIGS):
        for m, memory in enumerate(MEMORY):
            for microbatches, tried in MICROBATCHES.items():
                for i, mix in enumerate(MIXES):
                    in_turn = (i - c - m) % len(MIXES) < tried
                    if in_turn or os.environ.get(ACCEPTANCE) == "full":
                        yield config, microbatches, mix, memory


def request_of(config: str, microbatches: int, mix: str, memory: str) -> pb.PlanRequest:
    request = workload_request(config, microbatches, 0, mix)
    given = request.job.cluster.memory_bytes.pop()
    if MEMORY[memory]:
        request.job.cluster.memory_bytes.append(int(given * MEMORY[memory]))
    return request


@cache
def loaded(config: str, memory: str) -> pb.Partition:
    """Return what a job of this set-up would have loaded: its batches do not choose where layers live."""
    representative = request_of(config, 16, "web", memory)
    return make_partition(representative.job, representative.batch, budget_ms=SEARCH_MS)


@pytest.mark.parametrize(
    ("config", "microbatches", "mix", "memory"), [pytest.param(*cell, id=", ".join(map(str, cell))) for cell in cells()]
)
def test_plan_and_fallback_are_accepted(
    peer: PeerChecker, config: str, microbatches: int, mix: str, memory: str
) -> None:
    request = request_of(config, microbatches, mix, memory)
    partition = loaded(config, memory)
    if microbatches > min(MICROBATCHES):  # the smallest batches have their own chosen
        request.partition.CopyFrom(partition)
    for plan in (make_plan(request, budget_ms=SEARCH_MS), fallback_plan(request.job, partition, request.batch)):
        if plan.fallback:
            request.partition.CopyFrom(partition)
        faults, figures = peer.check(request, plan)
        result = check_plan(request, plan)
        assert (faults, result.faults, result.warnings) == ([], (), ())
        assert result.figures is not None
        assert (result.figures.gap, result.figures.over_ideal) == (figures["gap"], figures["over_ideal"])
        if microbatches == min(MICROBATCHES):
            assert_one_verdict_on_mutations(peer, request, plan, f"{config} {mix} {memory}")


def assert_one_verdict_on_mutations(peer: PeerChecker, request: pb.PlanRequest, plan: pb.Plan, seed: str) -> None:
    rng, left = random.Random(seed), 2
    for mutation in rng.sample(MUTATIONS, len(MUTATIONS)):
        spoiled = type(plan).FromString(plan.SerializeToString())
        if not left or not PLAN_MUTATIONS[mutation](spoiled, rng):  # what was found in time may have no two transfers
            continue
        left -= 1
        faults = check_plan(request, spoiled).faults
        assert peer.rejects(request, spoiled) is bool(faults), f"{mutation}: we find {list(faults[:5])}"
    assert not left
