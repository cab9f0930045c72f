"""One operator of a layer on one GPU: it takes as long as its arithmetic, its traffic or its exchange, the longest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner_service.costs.checks import require_range
from planner_service.costs.gpus import BYTES_PER_US, FLOP_PER_US

if TYPE_CHECKING:
    from planner_service.costs.gpus import Gpu

_MIN_SHARE = 1e-3
_MAX_LAUNCH_US = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Efficiency:
    """What operators reach of a data sheet's figures, and what each costs before it does anything.

    Parameters
    ----------
    products, attention
        Share of the arithmetic that large matrix products and flash attention reach.
    memory
        Share of the memory's bandwidth.
    nvlink, network, host
        Share of each link's bandwidth.
    overlap
        Share of a layer's work under which copies to the host and back can run: 1 where they have a stream of their
        own, 0 where trainers copy between layers.
    launch_us
        Fixed time of an operator: launch, ramp-up and tail.
    collective_us
        Fixed time of an exchange between GPUs.

    Raises
    ------
    ValueError
        Where a share is not from 0.001 to 1, ``overlap`` not from 0 to 1, or a time not from 0 to a second.
    """

    products: float = 0.6
    attention: float = 0.6
    memory: float = 0.8
    nvlink: float = 0.8
    network: float = 0.85
    host: float = 0.85
    overlap: float = 1.0
    launch_us: float = 3.0
    collective_us: float = 8.0

    def __post_init__(self) -> None:
        for field in ("products", "attention", "memory", "nvlink", "network", "host"):
            require_range(field, getattr(self, field), _MIN_SHARE, 1)
        require_range("overlap", self.overlap, 0, 1)
        for field in ("launch_us", "collective_us"):
            require_range(field, getattr(self, field), 0, _MAX_LAUNCH_US)


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A GPU as layers find it: what it really reaches, each microsecond.

    Parameters
    ----------
    product_flop, attention_flop
        Operations of matrix products, and of attention.
    memory_bytes
        Bytes to and from its memory.
    exchange_bytes
        Bytes to other GPUs of the same layer.
    hop_bytes
        Bytes to the GPU of another pipeline rank.
    host_bytes, overlap
        Bytes to the memory of the host, and as many from there; and under which share of a layer's work.
    launch_us, collective_us
        Fixed times of an operator and of an exchange.
    """

    product_flop: float
    attention_flop: float
    memory_bytes: float
    exchange_bytes: float
    hop_bytes: float
    host_bytes: float
    overlap: float
    launch_us: float
    collective_us: float

    @classmethod
    def of(cls, gpu: Gpu, efficiency: Efficiency, *, tensor_parallel: int, ranks: int) -> Device:
        """Return what a GPU reaches; NVLink carries what stays within a node, the network everything else."""
        nvlink = gpu.nvlink_gb_per_s * efficiency.nvlink * BYTES_PER_US
        network = gpu.network_gb_per_s * efficiency.network * BYTES_PER_US
        flop = gpu.bf16_tflops * FLOP_PER_US
        return cls(
            product_flop=flop * efficiency.products,
            attention_flop=flop * efficiency.attention,
            memory_bytes=gpu.memory_gb_per_s * efficiency.memory * BYTES_PER_US,
            exchange_bytes=nvlink if tensor_parallel <= gpu.node_gpus else network,
            hop_bytes=nvlink if tensor_parallel * ranks <= gpu.node_gpus else network,
            host_bytes=gpu.host_gb_per_s * efficiency.host * BYTES_PER_US,
            overlap=efficiency.overlap,
            launch_us=efficiency.launch_us,
            collective_us=efficiency.collective_us,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """Work that grows with the units of a sub-microbatch.

    Parameters
    ----------
    flop
        Operations of matrix products for each unit.
    bytes_once, bytes_each
        Traffic with the GPU's memory: whatever the size, and for each unit.
    exchanged
        Bytes to other GPUs for each unit; an operator that exchanges does nothing else.
    """

    flop: float = 0.0
    bytes_once: float = 0.0
    bytes_each: float = 0.0
    exchanged: float = 0.0

    def time_us(self, device: Device, units: int) -> float:
        """Time for so many units: ``fixed + max(compute, memory, network)``."""
        fixed = device.collective_us if self.exchanged else device.launch_us
        compute = self.flop * units / device.product_flop
        memory = (self.bytes_once + self.bytes_each * units) / device.memory_bytes
        network = self.exchanged * units / device.exchange_bytes
        return fixed + max(compute, memory, network)
