"""Measures what a user's layers cost, for the job that is registered with the planner.

A run of identical layers is measured on one of its layers, at several sizes. A second measurement, of several small
instances together, tells the part that grows with the square of an instance (attention) from the part that grows with
the sum. Where a run has a layer that neither starts nor ends its module, that one is measured, alone; else ``enter``,
``leave`` or ``loss`` count as part of the layer, given ``make_batch``. A costly head is best declared as a layer of its
own, in a run of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import torch
from dip.job import Job
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_job_spec

from trainer_agent.compiling import OFFLOAD, RECOMPUTE, STORE
from trainer_agent.errors import ProfileError
from trainer_agent.first_rank import decided_by_first_rank
from trainer_agent.layer_timing import LayerTimer
from trainer_agent.stages import Chunk, build_and_check

if TYPE_CHECKING:
    from dip.job import LayerRun, Module

    from trainer_agent.layer_timing import LayerTimes
    from trainer_agent.mesh import Mesh
    from trainer_agent.stages import BuildChunk, HandOff, ModuleHandOffs

DEFAULT_UNITS = (64, 256, 1024)
DEFAULT_REPEATS = 5
# Weights, gradients, and the two moments of Adam.
TRAINED_COPIES = 4
# Of a measured time, what the squared part may be.
LARGEST_ATTENTION_SHARE = 0.95
LEAN = RECOMPUTE, OFFLOAD

MakeBatch: TypeAlias = Callable[[str, Sequence[int]], object]
Units: TypeAlias = Sequence[int] | Mapping[str, Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class ProfileTarget:
    """What there is to measure: what the factory given to ``python -m trainer_agent profile --build`` returns.

    Parameters
    ----------
    spec
        The job: modules with their inputs and the counts of their runs of layers, cluster, options. Costs in it are
        replaced; sizes (``static_bytes``, ``output_bytes_per_unit``, ``result_bytes_per_unit``) are filled in where
        they are 0.
    build_chunk, hand_offs
        As the `Executor` gets them.
    make_batch
        ``make_batch(module, sizes)`` returns a batch of the user's own whose microbatch 0 has one sample with one
        instance of the module for each size. None: layers do not need ``task.batch``, and only layers are timed.
    units
        Sizes to measure at, for all modules or for each by name; ascending.
    """

    spec: pb.JobSpec
    build_chunk: BuildChunk
    hand_offs: Mapping[str, ModuleHandOffs]
    make_batch: MakeBatch | None = None
    units: Units = field(default=DEFAULT_UNITS)

    def units_of(self, module: str) -> tuple[int, ...]:
        """Return the sizes at which a module is measured.

        Raises
        ------
        ProfileError
            There are none, or they are not ascending whole numbers above 0.
        """
        units = self.units.get(module, ()) if isinstance(self.units, Mapping) else self.units
        if not units or list(units) != sorted(set(units)) or units[0] < 1:
            raise ProfileError(f"units of {module}: {list(units)}; must be ascending and above 0, at least one")
        return tuple(units)


def profile_layers(
    target: ProfileTarget,
    *,
    mesh: Mesh | None = None,
    device: torch.device | str = "cpu",
    repeats: int = DEFAULT_REPEATS,
    strategies: Sequence[str] = (RECOMPUTE,),
    progress: Callable[[str], object] | None = None,
) -> pb.JobSpec:
    """Measure every run of layers and return the job with its costs.

    Where the job allows split backwards, both halves are measured as they are run, and what is held between them;
    else the weight half is what a whole backward takes beyond the gradient of the input.

    Parameters
    ----------
    target
        What to measure.
    mesh
        Where given, global rank 0 measures alone, on an otherwise idle machine, and tells the others: all processes
        must register and run the same costs. Collective.
    device
        Where to measure.
    repeats
        Measurements of each figure; the median counts.
    strategies
        Ways to keep less that are measured beside "store": "recompute", "offload".
    progress
        Called with a line of text for each run of layers.

    Raises
    ------
    ProfileError
        A layer cannot be measured. With a mesh: whatever goes wrong on rank 0, on all processes.
    dip.errors.InvalidRequestError
        The job is not valid even with its costs.
    """
    if mesh is None:
        return _measured(target, torch.device(device), repeats, strategies, progress)
    told = decided_by_first_rank(
        lambda: _measured(target, torch.device(device), repeats, strategies, progress).SerializeToString(),
        mesh,
        what="profile of the layers",
        failure=ProfileError,
    )
    return pb.JobSpec.FromString(told)


def _measured(
    target: ProfileTarget,
    device: torch.device,
    repeats: int,
    strategies: Sequence[str],
    progress: Callable[[str], object] | None,
) -> pb.JobSpec:
    if repeats < 1:
        raise ProfileError(f"repeats: {repeats}; must be above 0")
    if set(strategies).difference(LEAN) or len(set(strategies)) != len(strategies):
        raise ProfileError(f"strategies: {list(strategies)}; must be some of {list(LEAN)}, each once")
    spec = pb.JobSpec()
    spec.CopyFrom(target.spec)
    for module in spec.model.modules:
        if module.name not in target.hand_offs:
            raise ProfileError(f"hand_offs: no {module.name!r}; must name every module of the job")
        for run in module.layers:
            run.ClearField("cost")
    # Known before anything is measured: who trains, and which layers a run has.
    job = Job.from_spec(_with_unit_costs(spec))
    for message, known in zip(spec.model.modules, job.modules, strict=True):
        sizes, hand_offs = target.units_of(known.name), target.hand_offs[known.name]
        message.output_bytes_per_unit = message.output_bytes_per_unit or _bytes_per_unit(hand_offs.output, sizes)
        message.result_bytes_per_unit = message.result_bytes_per_unit or _bytes_per_unit(hand_offs.handed_on, sizes)
        for run_message, layers in zip(message.layers, known.runs, strict=True):
            timer, held = _timer(target, job, known, layers, device=device, repeats=repeats)
            run_message.cost.CopyFrom(measure_cost(timer, sizes, strategies))
            run_message.static_bytes = run_message.static_bytes or held * (1 if known.frozen else TRAINED_COPIES)
            if progress is not None:
                largest = run_message.cost.points[-1]
                progress(
                    f"{known.name}, layers {layers.start}..{layers.stop - 1}: {largest.forward_us:.0f} us forward, "
                    f"{largest.backward_input_us + largest.backward_weight_us:.0f} us backward at {largest.units} units"
                )
    validate_job_spec(spec)
    return spec


def _timer(
    target: ProfileTarget, job: Job, module: Module, run: LayerRun, *, device: torch.device, repeats: int
) -> tuple[LayerTimer, int]:
    """Build the layer that stands for a run; returns its timer and the bytes of its parameters."""
    chunk = representative(module, run, is_loss=module.index == len(job.modules) - 1)
    built = build_and_check(target.build_chunk, chunk)
    if module.frozen:
        built.requires_grad_(False)
    timer = LayerTimer(
        module=built,
        chunk=chunk,
        hand_offs=target.hand_offs[module.name],
        inputs=[job.modules[index].name for index in module.inputs],
        make_batch=target.make_batch,
        trains=module.trains,
        frozen=module.frozen,
        split=job.split_backward,
        device=device,
        repeats=repeats,
    )
    return timer, sum(parameter.numel() * parameter.element_size() for parameter in built.layers.parameters())


def representative(module: Module, run: LayerRun, *, is_loss: bool) -> Chunk:
    """Choose the layer of a run that is measured: one inside the module where there is one."""
    inside = [layer for layer in range(run.start, run.stop) if 0 < layer < module.num_layers - 1]
    layer = inside[0] if inside else run.start
    last = layer == module.num_layers - 1
    return Chunk(
        module=module.name,
        index=0,
        rank=0,
        first_layer=layer,
        num_layers=1,
        is_first=layer == 0,
        is_last=last,
        is_loss=last and is_loss,
    )


def measure_cost(timer: LayerTimer, sizes: Sequence[int], strategies: Sequence[str] = (RECOMPUTE,)) -> pb.LayerCost:
    """Measure one layer at several sizes.

    The largest size is measured once more as instances of the smallest size: what that takes less, over the squares
    that it has less, is the attention's coefficient, and the points are what is left of the times without it.
    """
    times = [timer.measure([units], (STORE, *strategies)) for units in sizes]
    stored = [taken[STORE] for taken in times]
    attention = _attention(timer, sizes, stored)
    cost = pb.LayerCost(attention=attention, points=_points(sizes, stored, attention))
    for way in strategies:
        lean = pb.AttentionCost()
        lean.CopyFrom(attention)
        if way == RECOMPUTE:
            lean.backward_input_us += attention.forward_us
        points = _points(sizes, [taken[way] for taken in times], lean)
        for point, beside in zip(points, cost.points, strict=True):
            # What keeps less does at least as much: measured times may say otherwise, by what measuring is off.
            point.forward_us = beside.forward_us if way == RECOMPUTE else max(point.forward_us, beside.forward_us)
            point.backward_input_us = max(point.backward_input_us, beside.backward_input_us)
        cost.strategies.add(name=way, points=points, attention=lean)
    return cost


def _points(sizes: Sequence[int], times: Sequence[LayerTimes], attention: pb.AttentionCost) -> list[pb.CostPoint]:
    """What is left of times without the squared part."""
    return [
        pb.CostPoint(
            units=units,
            forward_us=taken.forward_us - attention.forward_us * units * units,
            backward_input_us=max(0.0, taken.backward_input_us - attention.backward_input_us * units * units),
            backward_weight_us=taken.backward_weight_us,
            activation_bytes=taken.activation_bytes,
            split_activation_bytes=taken.split_activation_bytes,
        )
        for units, taken in zip(sizes, times, strict=True)
    ]


def _attention(timer: LayerTimer, sizes: Sequence[int], times: Sequence[LayerTimes]) -> pb.AttentionCost:
    """Microseconds for each squared unit; 0 where the largest size is no multiple of the smallest."""
    small, large = sizes[0], sizes[-1]
    count = large // small
    if count < 2 or large % small:
        return pb.AttentionCost()
    whole, parts = times[-1], timer.measure([small] * count)[STORE]
    squares = large * large - count * small * small

    def slope(one: float, other: float, all_sizes: Sequence[float]) -> float:
        """Never so much that it exceeds what was measured at some size."""
        most = min(taken / units**2 for units, taken in zip(sizes, all_sizes, strict=True))
        return min(max(0.0, one - other) / squares, LARGEST_ATTENTION_SHARE * most)

    return pb.AttentionCost(
        forward_us=slope(whole.forward_us, parts.forward_us, [t.forward_us for t in times]),
        backward_input_us=slope(whole.backward_input_us, parts.backward_input_us, [t.backward_input_us for t in times]),
    )


def _bytes_per_unit(hand_off: HandOff, sizes: Sequence[int]) -> int:
    """Bytes for each unit at the largest size, rounded up."""
    num_bytes = hand_off.rows(sizes[-1]) * hand_off.dtype.itemsize
    for size in hand_off.features:
        num_bytes *= size
    return -(-num_bytes // sizes[-1])


def _with_unit_costs(spec: pb.JobSpec) -> pb.JobSpec:
    """Return the job with made-up costs, valid but for them."""
    made = pb.JobSpec()
    made.CopyFrom(spec)
    for module in made.model.modules:
        for run in module.layers:
            run.cost.points.add(units=1, forward_us=1.0)
    validate_job_spec(made)
    return made
