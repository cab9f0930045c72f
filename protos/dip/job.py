"""A job specification looked up: modules by index, who feeds whom, who trains, what a hop takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from dip.chunk_costs import CostBook
from dip.costs import LayerTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dip.planner.v1 import planner_pb2 as pb

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerRun:
    """Identical layers in a row: ``stop - start`` layers from layer ``start`` of the module on."""

    start: int
    stop: int
    table: LayerTable
    static_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Module:
    """One modality module.

    Parameters
    ----------
    index, name
        Place in the model, and name.
    inputs, consumers
        Indexes of the modules before and after it.
    runs
        Its layers.
    frozen
        Whether it has no weight gradients.
    trains
        Whether it has a backward pass: it or a module before it is trainable.
    output_bytes, result_bytes
        For each unit: what a layer hands to the next, and what the module hands to its consumers.
    max_units
        Largest sub-microbatch that was asked for; 0 where the planner chooses.
    """

    index: int
    name: str
    inputs: tuple[int, ...]
    consumers: tuple[int, ...]
    runs: tuple[LayerRun, ...]
    frozen: bool
    trains: bool
    output_bytes: int
    result_bytes: int
    max_units: int

    @property
    def num_layers(self) -> int:
        """Layers of the module."""
        return self.runs[-1].stop

    def runs_of(self, first_layer: int, num_layers: int) -> list[tuple[LayerRun, int]]:
        """Runs that a range of layers touches, each with the number of its layers inside, in layer order."""
        last = first_layer + num_layers
        found: list[tuple[LayerRun, int]] = []
        for run in self.runs:
            inside = min(run.stop, last) - max(run.start, first_layer)
            if inside > 0:
                found.append((run, inside))
        return found

    def static_bytes(self, first_layer: int, num_layers: int) -> int:
        """Weights, gradients and optimizer state of a range of layers."""
        return sum(run.static_bytes * count for run, count in self.runs_of(first_layer, num_layers))


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is trained and where, from a valid JobSpec.

    Parameters
    ----------
    modules
        In the order of the model, inputs first.
    ranks
        Pipeline ranks of one replica.
    memory_bytes
        What each rank may hold; 0 where there is no limit.
    speed
        Relative speed of each rank.
    link_latency_us, link_bytes_per_us
        What a hop between two ranks takes; no bandwidth term where the latter is 0.
    split_backward
        Whether trainers can run the backward pass in two halves.
    segments
        Segments that were asked for, by module index.
    """

    modules: tuple[Module, ...]
    ranks: int
    memory_bytes: tuple[int, ...]
    speed: tuple[float, ...]
    link_latency_us: int
    link_bytes_per_us: int
    split_backward: bool
    segments: Mapping[int, int]

    @classmethod
    def from_spec(cls, spec: pb.JobSpec) -> Job:
        """View of a specification that :mod:`dip.validation` accepts."""
        cluster, options = spec.cluster, spec.options
        modules = _modules(spec)
        by_name = {module.name: module.index for module in modules}
        return cls(
            modules=modules,
            ranks=cluster.ranks,
            memory_bytes=_per_rank(cluster.memory_bytes, cluster.ranks, 0),
            speed=_per_rank(cluster.rank_speed, cluster.ranks, 1.0),
            link_latency_us=cluster.link_latency_us,
            link_bytes_per_us=cluster.link_bytes_per_us,
            split_backward=options.split_backward,
            segments={by_name[name]: count for name, count in options.segments.items() if count},
        )

    @cached_property
    def module_index(self) -> dict[str, int]:
        """Index of each module by its name."""
        return {module.name: module.index for module in self.modules}

    @cached_property
    def cost_book(self) -> CostBook:
        """What cells of the job cost, on any partition."""
        return CostBook(self.modules, self.speed)

    def hop_us(self, num_bytes: int) -> int:
        """Microseconds that a transfer between two ranks takes."""
        if not self.link_bytes_per_us:
            return self.link_latency_us
        return self.link_latency_us - (-num_bytes // self.link_bytes_per_us)


def _per_rank(values: Sequence[T], ranks: int, default: T) -> tuple[T, ...]:
    given = tuple(values) or (default,)
    return given * ranks if len(given) == 1 else given


def _runs(module: pb.Module) -> tuple[LayerRun, ...]:
    runs, start = [], 0
    for run in module.layers:
        stop = start + run.count
        runs.append(LayerRun(start=start, stop=stop, table=LayerTable(run.cost), static_bytes=run.static_bytes))
        start = stop
    return tuple(runs)


def _modules(spec: pb.JobSpec) -> tuple[Module, ...]:
    listed = spec.model.modules
    index = {module.name: i for i, module in enumerate(listed)}
    made: list[Module] = []
    for i, module in enumerate(listed):
        inputs = tuple(index[name] for name in module.inputs)
        made.append(
            Module(
                index=i,
                name=module.name,
                inputs=inputs,
                consumers=tuple(j for j, other in enumerate(listed) if module.name in other.inputs),
                runs=_runs(module),
                frozen=module.frozen,
                trains=not module.frozen or any(made[j].trains for j in inputs),
                output_bytes=module.output_bytes_per_unit,
                result_bytes=module.result_bytes_per_unit or module.output_bytes_per_unit,
                max_units=spec.options.sub_microbatch_units.get(module.name, 0),
            )
        )
    return tuple(made)
