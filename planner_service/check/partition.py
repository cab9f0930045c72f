"""Rules of the partition: every layer lives in one chunk, on a rank that exists, where the request wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.check.facts import Facts, ModuleFacts

Layout = dict[str, list["pb.Chunk"]]
"""Chunks of each module, along its layers."""


def check_partition(facts: Facts, partition: pb.Partition, faults: list[str]) -> Layout:
    """Collect the faults of a partition; return its chunks by module."""
    layout: Layout = {name: [] for name in facts.modules}
    for chunk in partition.chunks:
        if chunk.module in layout:
            layout[chunk.module].append(chunk)
        else:
            faults.append(f"partition: a chunk of {chunk.module!r}, which is no module")
        if not 0 <= chunk.rank < facts.ranks:
            faults.append(f"partition: a chunk on rank {chunk.rank} of {facts.ranks}")
    for name, chunks in layout.items():
        chunks.sort(key=lambda chunk: chunk.index)
        _check_cover(facts.modules[name], chunks, facts.ranks, faults)
    if facts.loaded and _sorted(facts.loaded) != _sorted(partition.chunks):
        faults.append("partition: is not the loaded one that the request keeps")
    return layout


def _check_cover(module: ModuleFacts, chunks: Sequence[pb.Chunk], ranks: int, faults: list[str]) -> None:
    if not chunks or [chunk.index for chunk in chunks] != list(range(len(chunks))):
        faults.append(f"partition: chunks of {module.name} are numbered {[c.index for c in chunks]}, not 0, 1, ...")
    next_layer = 0
    for chunk in chunks:
        if chunk.first_layer != next_layer or chunk.num_layers < 1:
            faults.append(
                f"partition: chunk {chunk.index} of {module.name} has {chunk.num_layers} layers from "
                f"{chunk.first_layer}, the next layer is {next_layer}"
            )
        next_layer += chunk.num_layers
    if next_layer != len(module.layers):
        faults.append(f"partition: chunks of {module.name} hold {next_layer} layers, it has {len(module.layers)}")
    if module.segments is not None and len(chunks) != module.segments * ranks:
        faults.append(f"partition: {len(chunks)} chunks of {module.name}, {module.segments} segments were asked for")


def _sorted(chunks: Sequence[pb.Chunk]) -> list[tuple[str, int, int, int, int]]:
    return sorted((c.module, c.index, c.rank, c.first_layer, c.num_layers) for c in chunks)
