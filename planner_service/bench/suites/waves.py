"""The rise and fall: VLM-S over 40 iterations in which microbatches have more and more images, then fewer, twice.

Ours keeps one partition, chosen before, and plans each batch. Static plans are made once, for a batch of the middle, or
for the first one, which is nearly text; their partition and order stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.planner.v1 import planner_pb2 as pb

from planner_service.bench.case import Case
from planner_service.bench.ours import OURS, our_row, plan_seconds
from planner_service.bench.peers import load_peers, peer_row
from planner_service.bench.suites.suite import Suite
from planner_service.check.workload import workload_request
from planner_service.planning import make_partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner_service.bench.case import Row
    from planner_service.bench.settings import Settings

CONFIG, MIX = "vlm-s", "waves"
ITERATIONS = 40
MEGATRON, BALANCED = "megatron-interleaved", "latency-balanced"
ON_TEXT = "-on-text"
"""Ends the name of a static plan that was made for the first batch."""

STATIC = (MEGATRON, BALANCED, "torch-zbv-zero-bubble")
"""Made for a batch of the middle."""


def cases(settings: Settings) -> list[Case]:
    """The whole run, once for each seed."""
    return [
        Case(
            config=CONFIG,
            mix=MIX,
            seed=seed,
            microbatches=settings.microbatches,
            seconds=10 + ITERATIONS * (plan_seconds(settings, share=0.5) + 0.5),
        )
        for seed in settings.seeds[:1]
    ]


def measure(case: Case, settings: Settings) -> list[Row]:
    """Run all iterations under every method."""
    requests = iterations(case)
    average, first = average_batch(requests), requests[0].batch
    partition = make_partition(requests[0].job, average)
    peers = load_peers(settings.baselines).baselines
    static = [(name, peers[name], average) for name in STATIC if name in peers]
    static.append((BALANCED + ON_TEXT, peers[BALANCED], first))
    rows: list[Row] = []
    for iteration, request in enumerate(requests):
        kept = pb.PlanRequest(job=request.job, batch=request.batch, partition=partition)
        of_iteration = [our_row(case, kept, settings, method=OURS)[0]]
        for name, baseline, known in static:
            of_iteration.append({**peer_row(case, request, baseline, known=known), "method": name})
        images = images_of(request.batch)
        rows += [{**row, "iteration": iteration, "images": images} for row in of_iteration]
    return rows


def iterations(case: Case) -> list[pb.PlanRequest]:
    """Requests of the run: consecutive pieces of one long batch that rises and falls twice."""
    per, total = case.microbatches, case.microbatches * ITERATIONS
    whole = workload_request(case.config, total, case.seed, case.mix)
    whole.job.options.split_backward = True
    return [
        pb.PlanRequest(job=whole.job, batch=pb.Batch(microbatches=whole.batch.microbatches[first : first + per]))
        for first in range(0, total, per)
    ]


def average_batch(requests: Sequence[pb.PlanRequest]) -> pb.Batch:
    """Batch like all of the run together: its microbatches are taken from it at even distances."""
    together = [microbatch for request in requests for microbatch in request.batch.microbatches]
    return pb.Batch(microbatches=together[:: len(requests)])


def images_of(batch: pb.Batch) -> int:
    """Images of a batch."""
    samples = (sample for microbatch in batch.microbatches for sample in microbatch.samples)
    return sum(len(sample.instances["vision"].units) for sample in samples if "vision" in sample.instances)


WAVES = Suite(
    name="waves", about="40 iterations of rising and falling image counts, VLM-S", cases=cases, measure=measure
)
