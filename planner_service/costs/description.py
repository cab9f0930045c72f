"""What a user says about a model and its cluster: enough to know what training it costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dip.validation.limits import (
    MAX_INSTANCES,
    MAX_LATENCY_US,
    MAX_LAYERS,
    MAX_MICROBATCHES,
    MAX_MODULES,
    MAX_NAME_LENGTH,
    MAX_RANK_SPEED,
    MAX_RANKS,
    MAX_REPLICAS,
    MAX_UNITS,
    MIN_RANK_SPEED,
)

from planner_service.costs.checks import require, require_name, require_range
from planner_service.costs.operators import Efficiency
from planner_service.costs.roofline import STRATEGIES

if TYPE_CHECKING:
    from planner_service.costs.gpus import Gpu
    from planner_service.costs.transformer import Transformer

_MAX_WIDTH = 2**20
_MAX_GB = 1e6
_MAX_BYTES_PER_WEIGHT = 1024
_MAX_TENSOR_PARALLEL = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleDescription:
    """One modality module.

    Parameters
    ----------
    name
        Its name.
    transformer
        The shape of its layers; None where they were measured.
    measured
        The file of a job whose module of this name was measured; empty where ``transformer`` says what it costs.
    inputs
        Modules before it whose outputs it consumes.
    frozen
        Whether it has no weight gradients.
    result_width
        Numbers of one unit that it hands to its consumers; 0: its width, or as measured.
    merge
        Units that become one unit of the result, as patches do that are merged into tokens.
    segments, sub_microbatch_units
        What is asked of the planner; 0: it chooses.
    instance_units, instances
        A typical sample: units of each of its instances, 0: a size that the costs have in the middle; and how many.

    Raises
    ------
    ValueError
        Where a value is out of range, or there is not exactly one of ``transformer`` and ``measured``.
    """

    name: str
    transformer: Transformer | None = None
    measured: str = ""
    inputs: tuple[str, ...] = ()
    frozen: bool = False
    result_width: int = 0
    merge: int = 1
    segments: int = 0
    sub_microbatch_units: int = 0
    instance_units: int = 0
    instances: int = 1

    def __post_init__(self) -> None:
        require_name("name", self.name, MAX_NAME_LENGTH)
        both = "given where the layers' shape is not, and only there"
        require("measured", self.measured, both, when=bool(self.measured) == (self.transformer is None))
        require_range("result_width", self.result_width, 0, _MAX_WIDTH)
        require_range("merge", self.merge, 1, _MAX_WIDTH)
        merged = "1 where result_width is not given"
        require("merge", self.merge, merged, when=self.merge == 1 or bool(self.result_width))
        require_range("segments", self.segments, 0, MAX_LAYERS)
        require_range("sub_microbatch_units", self.sub_microbatch_units, 0, MAX_UNITS)
        require_range("instance_units", self.instance_units, 0, MAX_UNITS)
        require_range("instances", self.instances, 1, MAX_INSTANCES)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterDescription:
    """Pipeline ranks and what they may hold.

    Parameters
    ----------
    ranks, replicas
        Pipeline ranks of a replica, each as many GPUs as tensor parallelism has; and replicas.
    memory_share
        Share of the GPU's memory for static bytes and activations; the rest is for the allocator, the communication
        library, and what a layer needs while it runs.
    memory_gb
        The same in 10^9 bytes, one value for all ranks or one a rank; empty: by ``memory_share``.
    rank_speed
        Relative speed of each rank; empty: all alike.
    link_latency_us, link_gb_per_s
        Of a hop between ranks, for one GPU; no bandwidth: that of NVLink where all ranks share a node, else of the
        network.

    Raises
    ------
    ValueError
        Where a value is out of range, or a list fits the ranks no more than one value for all does.
    """

    ranks: int
    replicas: int = 1
    memory_share: float = 0.92
    memory_gb: tuple[float, ...] = ()
    rank_speed: tuple[float, ...] = ()
    link_latency_us: int = 12
    link_gb_per_s: float = 0.0

    def __post_init__(self) -> None:
        require_range("ranks", self.ranks, 1, MAX_RANKS)
        require_range("replicas", self.replicas, 1, MAX_REPLICAS)
        require("memory_share", self.memory_share, "above 0 and at most 1", when=0 < self.memory_share <= 1)
        for name, low, high in (("memory_gb", 1e-3, _MAX_GB), ("rank_speed", MIN_RANK_SPEED, MAX_RANK_SPEED)):
            held = getattr(self, name)
            allowed = f"none, one value for all ranks, or one for each of the {self.ranks} ranks"
            require(name, held, allowed, when=len(held) in (0, 1, self.ranks))
            for rank, value in enumerate(held):
                require_range(f"{name}[{rank}]", value, low, high)
        require_range("link_latency_us", self.link_latency_us, 0, MAX_LATENCY_US)
        require_range("link_gb_per_s", self.link_gb_per_s, 0, _MAX_GB)


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightMemory:
    """Bytes that one weight takes.

    The defaults are those of mixed precision with Adam: a bf16 weight, its gradient in fp32, and a copy of the weight
    and two moments in fp32 (Rajbhandari et al., arXiv 1910.02054, section 3.1, with gradients in fp32).

    Parameters
    ----------
    weight_bytes, gradient_bytes, optimizer_bytes
        Of each.
    optimizer_shards
        Replicas that share the optimizer's state, each holding a part of it.

    Raises
    ------
    ValueError
        Where a value is out of range.
    """

    weight_bytes: float = 2.0
    gradient_bytes: float = 4.0
    optimizer_bytes: float = 12.0
    optimizer_shards: int = 1

    def __post_init__(self) -> None:
        for name in ("weight_bytes", "gradient_bytes", "optimizer_bytes"):
            require_range(name, getattr(self, name), 0, _MAX_BYTES_PER_WEIGHT)
        require_range("optimizer_shards", self.optimizer_shards, 1, MAX_REPLICAS)

    def bytes_each(self, *, frozen: bool) -> float:
        """Bytes of one weight; a frozen one has neither gradient nor optimizer state."""
        if frozen:
            return self.weight_bytes
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes / self.optimizer_shards


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchDescription:
    """A typical batch.

    Parameters
    ----------
    microbatches, samples
        Microbatches of one replica, and samples of one of them, each with every module's instances.

    Raises
    ------
    ValueError
        Where a value is out of range.
    """

    microbatches: int = 16
    samples: int = 1

    def __post_init__(self) -> None:
        require_range("microbatches", self.microbatches, 1, MAX_MICROBATCHES)
        require_range("samples", self.samples, 1, MAX_INSTANCES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """A model, what it runs on, and a typical batch.

    Parameters
    ----------
    gpu
        What runs it.
    modules
        Inputs first; the last one computes the loss.
    cluster
        Ranks and links.
    tensor_parallel
        GPUs of one rank, which share every layer.
    strategies
        Ways to run a layer, besides storing everything, that the trainers have.
    split_backward
        Whether the trainers can run the backward in two halves.
    memory, efficiency, batch
        What weights take, what operators reach, what is typical.

    Raises
    ------
    ValueError
        Where a value is out of range, a strategy unknown, the batch too large, or a module cannot be cut for the
        tensor parallelism.
    """

    gpu: Gpu
    modules: tuple[ModuleDescription, ...]
    cluster: ClusterDescription
    tensor_parallel: int = 1
    strategies: tuple[str, ...] = STRATEGIES
    split_backward: bool = False
    memory: WeightMemory = field(default_factory=WeightMemory)
    efficiency: Efficiency = field(default_factory=Efficiency)
    batch: BatchDescription = field(default_factory=BatchDescription)

    def __post_init__(self) -> None:
        require_range("tensor_parallel", self.tensor_parallel, 1, _MAX_TENSOR_PARALLEL)
        require("modules", self.modules, f"1 to {MAX_MODULES} modules", when=0 < len(self.modules) <= MAX_MODULES)
        for i, name in enumerate(self.strategies):
            require(f"strategies[{i}]", name, f"one of {', '.join(STRATEGIES)}", when=name in STRATEGIES)
            require(f"strategies[{i}]", name, "named once", when=name not in self.strategies[:i])
        instances = self.batch.microbatches * self.batch.samples * sum(module.instances for module in self.modules)
        allowed = f"few enough that its samples have at most {MAX_INSTANCES:,} instances, not {instances:,}"
        require("batch.microbatches", self.batch.microbatches, allowed, when=instances <= MAX_INSTANCES)
        for i, module in enumerate(self.modules):
            if module.transformer is not None:
                try:
                    module.transformer.check_parallel(self.tensor_parallel)
                except ValueError as error:
                    raise ValueError(f"modules[{i}].{error}") from error
