"""From a description to the job that is registered, and to a typical batch of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dip.errors import InvalidRequestError
from dip.job import Job
from dip.partition import typical_load
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_job_spec

from planner_service.costs.checks import shown
from planner_service.costs.gpus import BYTES_PER_US
from planner_service.costs.operators import Device
from planner_service.costs.roofline import BF16, layer_cost
from planner_service.costs.tables import DescriptionError
from planner_service.costs.transformer import Shard

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner_service.costs.description import Description, ModuleDescription
    from planner_service.costs.transformer import Transformer

BYTES_PER_GB = 1_000_000_000


def job_spec(description: Description, measured: Mapping[str, pb.JobSpec] | None = None) -> pb.JobSpec:
    """Make the job that a description stands for.

    Parameters
    ----------
    description
        The model and its cluster.
    measured
        Jobs with measured costs by the names of their files, as modules of the description name them.

    Raises
    ------
    DescriptionError
        Where a measured job has no module of that name, or where modules do not go together.
    """
    device = Device.of(
        description.gpu,
        description.efficiency,
        tensor_parallel=description.tensor_parallel,
        ranks=description.cluster.ranks,
    )
    spec = pb.JobSpec(cluster=_cluster(description, device), options=_options(description))
    for i, module in enumerate(description.modules):
        if module.transformer is not None:
            made = _computed(description, module, module.transformer, device)
        else:
            made = _measured(module, measured or {}, f"modules[{i}]")
        if module.result_width:
            made.result_bytes_per_unit = _bytes_per_unit(
                module.result_width / module.merge, description.tensor_parallel
            )
        spec.model.modules.append(made)
    try:
        validate_job_spec(spec)
    except InvalidRequestError as error:
        raise DescriptionError(tuple(str(fault).removeprefix("job.model.") for fault in error.violations)) from error
    return spec


def typical_batch(spec: pb.JobSpec, description: Description | None = None) -> pb.Batch:
    """Make a batch of the instances that a description calls typical.

    Parameters
    ----------
    spec
        A valid job.
    description
        What it was made from; without one there is one microbatch of one sample, with one instance of each module.
    """
    job = Job.from_spec(spec)
    middle = {module.name: typical_load(module).sizes[0][0] for module in job.modules}
    if description is None:
        sizes, samples, microbatches = {name: [units] for name, units in middle.items()}, 1, 1
    else:
        sizes = {m.name: [m.instance_units or middle[m.name]] * m.instances for m in description.modules}
        samples, microbatches = description.batch.samples, description.batch.microbatches
    sample = pb.Sample(instances={name: pb.Instances(units=units) for name, units in sizes.items()})
    return pb.Batch(microbatches=[pb.Microbatch(samples=[sample] * samples)] * microbatches)


def _cluster(description: Description, device: Device) -> pb.Cluster:
    cluster = description.cluster
    memory_gb = cluster.memory_gb or (description.gpu.memory_gb * cluster.memory_share,)
    link = cluster.link_gb_per_s * BYTES_PER_US or device.hop_bytes
    return pb.Cluster(
        ranks=cluster.ranks,
        replicas=cluster.replicas,
        memory_bytes=[math.floor(held * BYTES_PER_GB) for held in memory_gb],
        link_latency_us=cluster.link_latency_us,
        link_bytes_per_us=max(1, math.floor(link)),
        rank_speed=cluster.rank_speed,
    )


def _options(description: Description) -> pb.PlannerOptions:
    modules = description.modules
    return pb.PlannerOptions(
        segments={module.name: module.segments for module in modules if module.segments},
        sub_microbatch_units={m.name: m.sub_microbatch_units for m in modules if m.sub_microbatch_units},
        split_backward=description.split_backward,
    )


def _computed(
    description: Description, module: ModuleDescription, transformer: Transformer, device: Device
) -> pb.Module:
    shard = Shard(layer=transformer, gpus=description.tensor_parallel)
    cost = layer_cost(
        shard,
        device,
        frozen=module.frozen,
        strategies=description.strategies,
        split_backward=description.split_backward,
    )
    static_bytes = math.ceil(description.memory.bytes_each(frozen=module.frozen) * shard.weights)
    run = pb.LayerRun(count=transformer.layers, cost=cost, static_bytes=static_bytes)
    return pb.Module(
        name=module.name,
        inputs=module.inputs,
        layers=[run],
        frozen=module.frozen,
        output_bytes_per_unit=_bytes_per_unit(transformer.width, description.tensor_parallel),
    )


def _measured(module: ModuleDescription, measured: Mapping[str, pb.JobSpec], path: str) -> pb.Module:
    """Take a module as it was measured: its layers with their costs and static bytes, and what it hands on."""
    held = {known.name: known for known in measured[module.measured].model.modules}
    if module.name not in held:
        allowed = f"a job with a module {module.name!r}: it has {', '.join(held) or 'none'}"
        raise DescriptionError((f"{path}.measured is {shown(module.measured)}, must be {allowed}",))
    made = pb.Module()
    made.CopyFrom(held[module.name])
    del made.inputs[:]
    made.inputs.extend(module.inputs)
    made.frozen = module.frozen
    return made


def _bytes_per_unit(width: float, tensor_parallel: int) -> int:
    """Bytes of one unit on one of the GPUs that share it."""
    return math.ceil(BF16 * width / tensor_parallel)
