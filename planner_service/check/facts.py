"""What a request says, looked up once: the facts that a plan is held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from planner_service.check.costs import LayerFacts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dip.planner.v1 import planner_pb2 as pb

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleFacts:
    """One module.

    Parameters
    ----------
    layers
        One entry a layer; the layers of a run share theirs.
    has_backward
        Whether this batch goes backward through it.
    has_weight_half
        Whether that gives gradients of weights.
    output_bytes, result_bytes
        For each unit: between its layers, and to its consumers.
    segments
        Segments that were asked for, if any.
    largest_units
        Sub-microbatch size that was asked for; 0 where none was.
    """

    name: str
    inputs: tuple[str, ...]
    layers: tuple[LayerFacts, ...]
    has_backward: bool
    has_weight_half: bool
    output_bytes: int
    result_bytes: int
    segments: int | None
    largest_units: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """A whole request.

    Parameters
    ----------
    modules
        By name, inputs first.
    units
        Units of the instances, by microbatch, sample and module; modules without instances are left out.
    speed, memory_bytes
        One entry a rank; no limit where memory is 0.
    loaded
        Chunks of the partition that the request keeps; empty where the planner chose.
    """

    modules: Mapping[str, ModuleFacts]
    units: Sequence[Sequence[Mapping[str, Sequence[int]]]]
    ranks: int
    speed: Sequence[float]
    memory_bytes: Sequence[int]
    link_latency_us: int
    link_bytes_per_us: int
    split_backward: bool
    loaded: Sequence[pb.Chunk]

    @classmethod
    def of(cls, request: pb.PlanRequest) -> Facts:
        """Look up a valid request."""
        cluster, ranks = request.job.cluster, request.job.cluster.ranks
        return cls(
            modules=_modules(request),
            units=[
                [
                    {name: list(held.units) for name, held in sample.instances.items() if held.units}
                    for sample in m.samples
                ]
                for m in request.batch.microbatches
            ],
            ranks=ranks,
            speed=_for_each_rank(cluster.rank_speed, 1.0, ranks),
            memory_bytes=_for_each_rank(cluster.memory_bytes, 0, ranks),
            link_latency_us=cluster.link_latency_us,
            link_bytes_per_us=cluster.link_bytes_per_us,
            split_backward=request.job.options.split_backward,
            loaded=request.partition.chunks,
        )

    def hop_us(self, size: int) -> int:
        """Time of a transfer of this many bytes."""
        rate = self.link_bytes_per_us
        return self.link_latency_us + ((size + rate - 1) // rate if rate else 0)

    def instances(self) -> Iterator[tuple[str, int, int, int]]:
        """Module, microbatch, sample and index of every instance."""
        for j, samples in enumerate(self.units):
            for i, sample in enumerate(samples):
                for name, units in sample.items():
                    for k in range(len(units)):
                        yield name, j, i, k


def _for_each_rank(values: Sequence[T], default: T, ranks: int) -> list[T]:
    if len(values) == ranks:
        return list(values)
    return [values[0] if values else default] * ranks


def _modules(request: pb.PlanRequest) -> dict[str, ModuleFacts]:
    options, trains = request.job.options, dict[str, bool]()
    modules: dict[str, ModuleFacts] = {}
    for module in request.job.model.modules:
        trains[module.name] = not module.frozen or any(trains[name] for name in module.inputs)
        modules[module.name] = ModuleFacts(
            name=module.name,
            inputs=tuple(module.inputs),
            layers=tuple(layer for run in module.layers for layer in [LayerFacts.of(run)] * run.count),
            has_backward=trains[module.name] and not request.batch.forward_only,
            has_weight_half=not module.frozen,
            output_bytes=module.output_bytes_per_unit,
            result_bytes=module.result_bytes_per_unit or module.output_bytes_per_unit,
            segments=options.segments.get(module.name),
            largest_units=options.sub_microbatch_units.get(module.name, 0),
        )
    return modules
