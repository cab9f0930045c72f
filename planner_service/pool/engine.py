"""What workers solve with. Imported in workers only: these modules are heavy.

A pool can be given another module of the same names, which is how tests inject faults.
"""

from __future__ import annotations

from dip.fallback import fallback_plan
from dip.planner.v1 import planner_pb2 as pb

from planner_service.planning import make_partition, make_plan

__all__ = ["fallback_plan", "make_partition", "make_plan", "warm_up"]

_WARM_UP_EVALUATIONS = 50


def warm_up() -> None:
    """Plan something tiny, so that compiled code is made or loaded before the clock of a solve runs.

    Compiling takes seconds once on a machine, loading what was compiled tenths of a second in each process.
    """
    make_plan(_tiny_request())


def _tiny_request() -> pb.PlanRequest:
    """Two modules on two ranks, tight enough that every part of the search has something to do."""
    point = pb.CostPoint(units=10, forward_us=10, backward_input_us=10, backward_weight_us=10, activation_bytes=100)
    lean = pb.CostPoint(units=10, forward_us=10, backward_input_us=20, backward_weight_us=10, activation_bytes=10)
    cost = pb.LayerCost(points=[point], strategies=[pb.MemoryStrategy(name="recompute", points=[lean])])
    modules = [
        pb.Module(name=name, inputs=inputs, layers=[pb.LayerRun(count=4, cost=cost)], output_bytes_per_unit=1)
        for name, inputs in (("encoder", ()), ("backbone", ("encoder",)))
    ]
    sample = pb.Sample(instances={name: pb.Instances(units=[10, 20]) for name in ("encoder", "backbone")})
    return pb.PlanRequest(
        job=pb.JobSpec(
            model=pb.Model(modules=modules),
            cluster=pb.Cluster(ranks=2, memory_bytes=[2_000], link_latency_us=1, link_bytes_per_us=1),
            options=pb.PlannerOptions(split_backward=True, max_evaluations=_WARM_UP_EVALUATIONS),
        ),
        batch=pb.Batch(microbatches=[pb.Microbatch(samples=[sample, sample]) for _ in range(4)]),
    )
