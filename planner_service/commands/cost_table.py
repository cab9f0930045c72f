"""The tables that people read of what a job costs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from planner_service.commands.table import readable_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from planner_service.costs.account import ChunkRange, JobCost, ModuleCost, RankCost, WayCost

NOTICEABLE = 5e-4
"""Share by which a rank may have more to do than the mean and still be like the others."""


def cost_table(cost: JobCost) -> str:
    """Lay out modules, the ways to run their layers, and ranks."""
    modules = cost.modules
    lines = [f"batch of {cost.microbatches:,} microbatches, each run whole, on ranks of speed 1; times in ms"]
    lines += _aligned(_modules(modules))
    lines += ["", "the largest microbatch in each way to run its layers"]
    lines += _aligned(_ways(modules))
    lines += ["", "smallest sub-microbatch that keeps 95% of the best throughput"]
    lines += _aligned(_efficient(modules))
    lines += ["", "load of each rank; times in ms"]
    lines += _aligned(_ranks(cost), left=(0, len(modules) + 5))
    return "\n".join((*lines, "", *_balance(cost.ranks)))


def _modules(modules: Sequence[ModuleCost]) -> Iterator[Sequence[str]]:
    yield "module", "layers", "units", "forward", "backward input", "backward weight", "share", "static bytes"
    for module in modules:
        store = module.ways[0]
        times = (store.forward_us, store.backward_input_us, store.backward_weight_us)
        layers, static = f"{module.num_layers:,}", readable_bytes(module.static_bytes)
        yield module.name, layers, f"{module.units:,}", *map(_ms, times), f"{module.share:.1%}", static


def _ways(modules: Sequence[ModuleCost]) -> Iterator[Sequence[str]]:
    yield "module", "units", "way", "time", "kept until backward", "kept between its halves"
    for module in modules:
        for i, way in enumerate(module.ways):
            name, units = ("", "") if i else (module.name, f"{module.largest_units:,}")
            kept = (readable_bytes(way.kept_bytes), readable_bytes(way.split_kept_bytes))
            yield name, units, way.name, _more(way, module.ways[0]), *kept


def _more(way: WayCost, store: WayCost) -> str:
    """Time in proportion to storing everything."""
    if way is store:
        return "1"
    return f"{way.total_us / store.total_us:.2f}" if store.total_us else "-"


def _efficient(modules: Sequence[ModuleCost]) -> Iterator[Sequence[str]]:
    yield "module", "units", "instances", "of units"
    for module in modules:
        size = module.instance_units
        many = f"{math.ceil(module.efficient_units / size):,}" if size else "-"
        yield module.name, f"{module.efficient_units:,}", many, f"{size:,.0f}" if size else "-"


def _ranks(cost: JobCost) -> Iterator[Sequence[str]]:
    yield "rank", *(module.name for module in cost.modules), "all", "share", "static bytes", "allowed", "layers"
    for rank in cost.ranks:
        times = (_ms(rank.module_us[module.name]) for module in cost.modules)
        allowed = readable_bytes(rank.memory_bytes) if rank.memory_bytes else "no limit"
        static = readable_bytes(rank.static_bytes)
        yield str(rank.rank), *times, _ms(rank.total_us), f"{rank.share:.1%}", static, allowed, _layers(rank.chunks)


def _layers(chunks: Iterable[ChunkRange]) -> str:
    return ", ".join(f"{chunk.module} {chunk.first_layer}-{chunk.last_layer}" for chunk in chunks)


def _balance(ranks: Sequence[RankCost]) -> Iterator[str]:
    mean_us = sum(rank.total_us for rank in ranks) / len(ranks)
    busiest = max(ranks, key=lambda rank: rank.total_us)
    if busiest.total_us - mean_us <= NOTICEABLE * mean_us:
        yield "all ranks have as much to do"
    else:
        yield f"rank {busiest.rank} has {busiest.total_us / mean_us - 1:.1%} more to do than the mean"
    for rank in ranks:
        if rank.memory_bytes and rank.static_bytes > rank.memory_bytes:
            over = readable_bytes(rank.static_bytes - rank.memory_bytes)
            yield f"rank {rank.rank} cannot hold its layers: {over} too much before any activation"


def _ms(time_us: int) -> str:
    return f"{time_us / 1000:,.1f}"


def _aligned(rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Columns two spaces apart, numbers to the right."""
    listed = list(rows)
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in listed
    ]
