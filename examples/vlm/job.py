"""The job as the planner gets to know it: modules, layers and what they cost on this machine."""

from __future__ import annotations

from dip.planner.v1 import planner_pb2 as pb

from examples.vlm.model import VlmConfig
from trainer_agent.profiler import ProfileTarget

# gloo over the loopback device, roughly: a transfer takes this long, however small, and so many bytes a microsecond.
LINK_LATENCY_US, LINK_BYTES_PER_US = 300, 1000
SEARCH_MS = 400
# Passes through the pipeline. More of them fill it faster, with actions so short here that handing on costs as much.
SEGMENTS = {"vision": 1, "language": 1}
# Largest sub-microbatches, for the same reason: so that all actions take some milliseconds.
SUB_MICROBATCH_UNITS = {"vision": 768, "language": 768}
# Patches and tokens to measure layers at: from the least sub-microbatches to the largest.
MEASURED_UNITS = {"vision": (96, 384, 1152), "language": (80, 320, 640)}


def job_without_costs(config: VlmConfig, *, ranks: int) -> pb.JobSpec:
    """Return the two modules and the cluster; layers have no costs yet."""
    spec = pb.JobSpec(
        cluster=pb.Cluster(ranks=ranks, link_latency_us=LINK_LATENCY_US, link_bytes_per_us=LINK_BYTES_PER_US),
        options=pb.PlannerOptions(budget_ms=SEARCH_MS, segments=SEGMENTS, sub_microbatch_units=SUB_MICROBATCH_UNITS),
    )
    spec.model.modules.add(name="vision").layers.add(count=config.vision.layers)
    spec.model.modules.add(name="language", inputs=["vision"]).layers.add(count=config.language.layers)
    return spec


def profile_target(config: VlmConfig | None = None, *, ranks: int = 2) -> ProfileTarget:
    """Return what `trainer_agent.profiler.profile_layers` measures to fill the costs in.

    On the command line: ``python -m trainer_agent profile --build examples.vlm.job:profile_target``.
    """
    config = VlmConfig() if config is None else config
    return ProfileTarget(
        spec=job_without_costs(config, ranks=ranks),
        build_chunk=config.build_chunk,
        hand_offs=config.hand_offs(),
        units=MEASURED_UNITS,
    )
