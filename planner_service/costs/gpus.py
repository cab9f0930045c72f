"""GPUs that the roofline knows, as their data sheets describe them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from dip.validation.limits import MAX_NAME_LENGTH

from planner_service.costs.checks import require_name, require_range, shown
from planner_service.costs.tables import DescriptionError, Faults, read_table

if TYPE_CHECKING:
    from collections.abc import Mapping

BYTES_PER_US = 1e3
"""One GB/s in bytes per microsecond."""
FLOP_PER_US = 1e6
"""One TFLOP/s in operations per microsecond."""

_MAX_GB = 1e6
_MAX_TFLOPS = 1e6
_MAX_NODE_GPUS = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU and its links; bandwidths are those of one direction, as data sheets state them.

    Parameters
    ----------
    name
        What descriptions call it.
    bf16_tflops
        Dense bf16 arithmetic, in 10^12 operations a second.
    memory_gb, memory_gb_per_s
        Capacity of its memory in 10^9 bytes, and its bandwidth.
    nvlink_gb_per_s
        Bandwidth to the other GPUs of its node.
    host_gb_per_s
        Bandwidth to the memory of its host.
    network_gb_per_s
        Bandwidth to other nodes.
    node_gpus
        GPUs of a node.

    Raises
    ------
    ValueError
        Where a value is out of range.
    """

    name: str
    bf16_tflops: float
    memory_gb: float
    memory_gb_per_s: float
    nvlink_gb_per_s: float
    host_gb_per_s: float
    network_gb_per_s: float
    node_gpus: int = 8

    def __post_init__(self) -> None:
        require_name("name", self.name, MAX_NAME_LENGTH)
        require_range("bf16_tflops", self.bf16_tflops, 1e-3, _MAX_TFLOPS)
        for field in ("memory_gb", "memory_gb_per_s", "nvlink_gb_per_s", "host_gb_per_s", "network_gb_per_s"):
            require_range(field, getattr(self, field), 1e-3, _MAX_GB)
        require_range("node_gpus", self.node_gpus, 1, _MAX_NODE_GPUS)


def read_gpus(tables: Mapping[str, object], path: str = "") -> dict[str, Gpu]:
    """Read GPUs from tables named after them, as ``gpus.toml`` of this package has them.

    Raises
    ------
    DescriptionError
        With every fault.
    """
    faults = Faults()
    found: dict[str, Gpu] = {}
    for name, table in tables.items():
        gpu = read_table(Gpu, table, f"{path}.{name}" if path else name, faults, name=name)
        if gpu is not None:
            found[name] = gpu
    faults.raise_if_any()
    return found


@cache
def known_gpus() -> Mapping[str, Gpu]:
    """GPUs that this package knows, by name."""
    return read_gpus(tomllib.loads(files(__package__).joinpath("gpus.toml").read_text(encoding="utf-8")))


def find_gpu(name: str, own: Mapping[str, Gpu]) -> Gpu:
    """Return the GPU of a name, the user's own before a known one.

    Raises
    ------
    DescriptionError
        Where there is none; the message lists the known ones and says which is close.
    """
    gpus = {**known_gpus(), **own}
    if name in gpus:
        return gpus[name]
    folded = {known.casefold(): known for known in gpus}
    close = get_close_matches(name.casefold(), folded, n=1)
    hint = f"did you mean {folded[close[0]]}? " if close else ""
    raise DescriptionError(
        (f"gpu is {shown(name)}, must be one of {', '.join(gpus)}; {hint}Others are added with --gpus or in [gpus]",)
    )
