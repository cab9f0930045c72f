"""A request and its plan worked out by hand: two images on rank 0 into one text on rank 1.

A unit costs 1 us forward, 2 us for the input's gradient and 1 us for the weights', and keeps 10 bytes (15 between the
halves of a split backward); a hop takes 5 us and a microsecond for every 10 bytes, a result has 2 bytes a unit::

    rank 0 | F0 0..10 | F1 10..30 |                                | B0 206..236 | B1 236..296 |
    rank 1 |                   F2 39..79 | B2 79..199 |
"""

from __future__ import annotations

from dip.digests import plan_digest
from dip.planner.v1 import planner_pb2 as pb

MAKESPAN_US = 296
IDEAL_US = (30 * 4 + 40 * 4) / 2
PEAKS = (400, 600)

FORWARD, BACKWARD = pb.ACTION_KIND_FORWARD, pb.ACTION_KIND_BACKWARD
INPUT_HALF, WEIGHT_HALF = pb.ACTION_KIND_BACKWARD_INPUT, pb.ACTION_KIND_BACKWARD_WEIGHT


def _layer(static_bytes: int) -> pb.LayerRun:
    point = pb.CostPoint(
        units=1,
        forward_us=1,
        backward_input_us=2,
        backward_weight_us=1,
        activation_bytes=10,
        split_activation_bytes=15,
    )
    lean = pb.CostPoint(
        units=1,
        forward_us=1,
        backward_input_us=3,
        backward_weight_us=1,
        activation_bytes=1,
        split_activation_bytes=15,
    )
    cost = pb.LayerCost(points=[point], strategies=[pb.MemoryStrategy(name="recompute", points=[lean])])
    return pb.LayerRun(count=1, cost=cost, static_bytes=static_bytes)


def tiny_request() -> pb.PlanRequest:
    """Return the request."""
    vision = pb.Module(name="vision", layers=[_layer(100)], output_bytes_per_unit=99, result_bytes_per_unit=2)
    language = pb.Module(name="language", inputs=["vision"], layers=[_layer(200)], output_bytes_per_unit=99)
    sample = pb.Sample(instances={"vision": pb.Instances(units=[10, 20]), "language": pb.Instances(units=[40])})
    return pb.PlanRequest(
        job=pb.JobSpec(
            model=pb.Model(modules=[vision, language]),
            cluster=pb.Cluster(ranks=2, link_latency_us=5, link_bytes_per_us=10),
        ),
        batch=pb.Batch(microbatches=[pb.Microbatch(samples=[sample])]),
    )


def compute(kind: pb.ActionKind.ValueType, sub: int, start_us: int, end_us: int) -> pb.Action:
    """Return a task; sub-microbatch 2 is the text's."""
    module = "language" if sub == 2 else "vision"
    return pb.Action(kind=kind, module=module, sub_microbatch=sub, start_us=start_us, end_us=end_us)


def transfer(kind: pb.ActionKind.ValueType, image: int, peer: int, start_us: int, end_us: int) -> pb.Action:
    """Return one end of what travels between an image and the text."""
    forward = kind in (pb.ACTION_KIND_SEND_ACTIVATION, pb.ACTION_KIND_RECV_ACTIVATION)
    return pb.Action(
        kind=kind,
        module="vision" if forward else "language",
        sub_microbatch=image if forward else 2,
        consumer_module="language" if forward else "vision",
        consumer_sub_microbatch=2 if forward else image,
        peer=peer,
        start_us=start_us,
        end_us=end_us,
    )


def tiny_plan() -> pb.Plan:
    """Return the plan, valid."""
    first = [
        compute(FORWARD, 0, 0, 10),
        transfer(pb.ACTION_KIND_SEND_ACTIVATION, 0, 1, 10, 17),
        compute(FORWARD, 1, 10, 30),
        transfer(pb.ACTION_KIND_SEND_ACTIVATION, 1, 1, 30, 39),
        transfer(pb.ACTION_KIND_RECV_GRADIENT, 0, 1, 199, 206),
        transfer(pb.ACTION_KIND_RECV_GRADIENT, 1, 1, 199, 208),
        compute(BACKWARD, 0, 206, 236),
        compute(BACKWARD, 1, 236, 296),
    ]
    second = [
        transfer(pb.ACTION_KIND_RECV_ACTIVATION, 0, 0, 10, 17),
        transfer(pb.ACTION_KIND_RECV_ACTIVATION, 1, 0, 30, 39),
        compute(FORWARD, 2, 39, 79),
        compute(BACKWARD, 2, 79, 199),
        transfer(pb.ACTION_KIND_SEND_GRADIENT, 0, 0, 199, 206),
        transfer(pb.ACTION_KIND_SEND_GRADIENT, 1, 0, 199, 208),
    ]
    chunks = [
        pb.Chunk(module="vision", rank=0, num_layers=1),
        pb.Chunk(module="language", rank=1, num_layers=1),
    ]
    plan = pb.Plan(
        partition=pb.Partition(chunks=chunks),
        sub_microbatches=[
            pb.SubMicrobatch(id=0, module="vision", instances=[pb.InstanceRef(index=0, units=10)]),
            pb.SubMicrobatch(id=1, module="vision", instances=[pb.InstanceRef(index=1, units=20)]),
            pb.SubMicrobatch(id=2, module="language", instances=[pb.InstanceRef(index=0, units=40)]),
        ],
        ranks=[
            pb.RankSchedule(rank=0, actions=first, peak_memory_bytes=PEAKS[0]),
            pb.RankSchedule(rank=1, actions=second, peak_memory_bytes=PEAKS[1]),
        ],
        makespan_us=MAKESPAN_US,
        lower_bound_us=280,
    )
    plan.digest = plan_digest(plan, tiny_request().batch)
    return plan


def split_tiny_request() -> pb.PlanRequest:
    """Return the request with a backward that may be split."""
    request = tiny_request()
    request.job.options.split_backward = True
    return request


def split_tiny_plan() -> pb.Plan:
    """Return the plan with the text's backward split: gradients leave at 159, the weight half runs after them.

    Between the halves the text keeps 600 bytes instead of 400.
    """
    plan = tiny_plan()
    first, second = plan.ranks[0].actions, plan.ranks[1].actions
    for action in (*first[4:], *second[4:]):
        action.start_us -= 40
        action.end_us -= 40
    second[3].kind, second[3].end_us = INPUT_HALF, 159
    second.append(compute(WEIGHT_HALF, 2, 159, 199))
    plan.ranks[1].peak_memory_bytes = 800
    plan.makespan_us, plan.lower_bound_us = MAKESPAN_US - 40, 240
    plan.digest = plan_digest(plan, tiny_request().batch)
    return plan
