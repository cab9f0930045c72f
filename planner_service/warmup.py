"""Compiles the search's kernels into their cache: ``python -m planner_service.warmup``, part of the set-up."""

from __future__ import annotations

import sys
import time

from dip.planner.v1 import planner_pb2 as pb

from planner_service.planning import make_plan


def small_request() -> pb.PlanRequest:
    """Request that runs every kernel: two modules, two ranks, limited memory, and no schedule that meets the bound."""
    point = pb.CostPoint(units=1, forward_us=10, backward_input_us=10, backward_weight_us=10, activation_bytes=10)
    lean = pb.CostPoint(units=1, forward_us=10, backward_input_us=20, backward_weight_us=10, activation_bytes=1)
    cost = pb.LayerCost(points=[point], strategies=[pb.MemoryStrategy(name="recompute", points=[lean])])
    modules = [
        pb.Module(name=name, inputs=inputs, layers=[pb.LayerRun(count=4, cost=cost)], output_bytes_per_unit=5)
        for name, inputs in (("encoder", []), ("decoder", ["encoder"]))
    ]
    return pb.PlanRequest(
        job=pb.JobSpec(
            model=pb.Model(modules=modules),
            cluster=pb.Cluster(ranks=2, memory_bytes=[500], link_latency_us=3, link_bytes_per_us=1),
            options=pb.PlannerOptions(max_evaluations=60),
        ),
        # Too many tasks for CP-SAT to be given the whole, which would take seconds and compile nothing.
        batch=pb.Batch(microbatches=[_microbatch(1 + j % 5, 1 + j % 7) for j in range(40)]),
    )


def _microbatch(encoder_units: int, decoder_units: int) -> pb.Microbatch:
    sizes = ((encoder_units, 3), (2, decoder_units))
    return pb.Microbatch(
        samples=[
            pb.Sample(instances={"encoder": pb.Instances(units=[encoder]), "decoder": pb.Instances(units=[decoder])})
            for encoder, decoder in sizes
        ]
    )


def main() -> int:
    """Compile, and say how long it took."""
    started = time.monotonic()
    make_plan(small_request())
    sys.stdout.write(f"search kernels ready after {time.monotonic() - started:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
