"""Validation of a partition: chunks that cover every module's layers, on ranks that exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.validation.limits import MAX_LAYERS
from dip.validation.violations import Violations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.planner.v1 import planner_pb2 as pb


def validate_partition(spec: pb.JobSpec, partition: pb.Partition, path: str = "partition") -> None:
    """Check a partition of a valid job.

    Parameters
    ----------
    spec
        A job that is valid.
    partition
        Where every layer lives; not empty.
    path
        Where the partition stands in its request.

    Raises
    ------
    InvalidRequestError
        With every violation.
    """
    violations = Violations()
    check_partition(spec, partition, path, violations)
    violations.raise_if_any()


def check_partition(spec: pb.JobSpec, partition: pb.Partition, path: str, violations: Violations) -> None:
    """Collect a partition's violations."""
    ranks = spec.cluster.ranks
    chunks_of: dict[str, list[tuple[int, pb.Chunk]]] = {module.name: [] for module in spec.model.modules}
    for n, chunk in enumerate(partition.chunks):
        at = f"{path}.chunks[{n}]"
        if chunk.module in chunks_of:
            chunks_of[chunk.module].append((n, chunk))
        else:
            violations.add(f"{at}.module", chunk.module, f"one of the modules {list(chunks_of)}")
        violations.in_range(f"{at}.rank", chunk.rank, 0, max(0, ranks - 1))
        violations.in_range(f"{at}.num_layers", chunk.num_layers, 1, MAX_LAYERS)
    for module in spec.model.modules:
        _check_module(module, chunks_of[module.name], path, violations)
        segments = spec.options.segments.get(module.name)
        if segments is not None:
            in_order = sorted((chunk for _, chunk in chunks_of[module.name]), key=lambda chunk: chunk.index)
            _check_segments(module.name, in_order, segments, ranks, path, violations)


def _check_module(module: pb.Module, chunks: Sequence[tuple[int, pb.Chunk]], path: str, violations: Violations) -> None:
    """Check that chunks are numbered 0, 1, ... along the layers, with every layer in one of them."""
    if not chunks:
        violations.add(f"{path}.chunks", f"without a chunk of {module.name!r}", "chunks that cover every module")
        return
    next_layer = 0
    for index, (n, chunk) in enumerate(sorted(chunks, key=lambda entry: (entry[1].index, entry[0]))):
        at = f"{path}.chunks[{n}]"
        if chunk.index != index:
            violations.add(f"{at}.index", chunk.index, f"{index}, the next of {module.name!r}, and no other chunk's")
        if chunk.first_layer != next_layer:
            allowed = f"{next_layer}, the layer of {module.name!r} after those of the chunk before"
            violations.add(f"{at}.first_layer", chunk.first_layer, allowed)
        next_layer += chunk.num_layers
    num_layers = sum(run.count for run in module.layers)
    if next_layer != num_layers:
        held = f"covering {next_layer} layers of {module.name!r}"
        violations.add(f"{path}.chunks", held, f"covering all {num_layers}")


def _check_segments(
    name: str, chunks: Sequence[pb.Chunk], segments: int, ranks: int, path: str, violations: Violations
) -> None:
    """Check that a module has the segments that were asked for: chunks in a row that visit every rank once."""
    asked = f"{segments} segments of {ranks} chunks, as options.segments asks for {name!r}"
    if len(chunks) != segments * ranks:
        violations.add(f"{path}.chunks", f"{len(chunks)} chunks of {name!r}", asked)
        return
    for first in range(0, len(chunks), max(1, ranks)):
        visited = [chunk.rank for chunk in chunks[first : first + ranks]]
        if len(set(visited)) != ranks:
            held = f"visiting ranks {visited} with chunks {first} to {first + ranks - 1} of {name!r}"
            violations.add(f"{path}.chunks", held, f"visiting every rank once with each of {asked}")
