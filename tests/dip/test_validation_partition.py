"""Shows that a partition is accepted only if its chunks cover every module on ranks that exist, as the job asks."""

from __future__ import annotations

import cases
import corners
import pytest
from dip.errors import InvalidRequestError
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_partition


def loaded() -> tuple[pb.JobSpec, pb.Partition]:
    request = corners.loaded_partition()
    return request.job, request.partition


def segmented(ranks: list[int]) -> pb.Partition:
    """Two layers of vision on each of four ranks in this order, and the language model on rank 0."""
    chunks = [
        pb.Chunk(module="vision", index=i, rank=rank, first_layer=2 * i, num_layers=2) for i, rank in enumerate(ranks)
    ]
    return pb.Partition(chunks=[*chunks, pb.Chunk(module="language", num_layers=12)])


def violations_of(spec: pb.JobSpec, partition: pb.Partition) -> dict[str, str]:
    with pytest.raises(InvalidRequestError) as caught:
        validate_partition(spec, partition)
    return {violation.field: violation.description for violation in caught.value.violations}


def test_any_ranks_in_any_number_are_valid() -> None:
    validate_partition(*loaded())


def test_chunks_may_be_listed_in_any_order() -> None:
    spec, partition = loaded()
    validate_partition(spec, pb.Partition(chunks=reversed(partition.chunks)))


@pytest.mark.parametrize(
    ("chunk", "field", "value", "says"),
    [
        (1, "module", "audio", "one of the modules"),
        (1, "rank", 4, "from 0 to 3"),
        (1, "rank", -1, "from 0 to 3"),
        (1, "index", 0, "is 0, must be 1, the next of 'vision'"),
        (5, "index", 7, "is 7, must be 3"),
        (3, "index", -1, "is -1, must be 0"),
        (1, "first_layer", 4, "is 4, must be 5"),
        (1, "first_layer", 6, "is 6, must be 5"),
        (4, "num_layers", 0, "is 0"),
        (4, "num_layers", -2, "is -2"),
    ],
)
def test_a_broken_field_of_a_chunk_is_named(chunk: int, field: str, value: object, says: str) -> None:
    spec, partition = loaded()
    setattr(partition.chunks[chunk], field, value)
    assert says in violations_of(spec, partition)[f"partition.chunks[{chunk}].{field}"]


def test_every_layer_is_covered() -> None:
    spec, partition = loaded()
    partition.chunks[5].num_layers = 4
    assert "covering 11 layers of 'language'" in violations_of(spec, partition)["partition.chunks"]


def test_every_module_has_a_chunk() -> None:
    spec, _ = loaded()
    chunks = [pb.Chunk(module="language", num_layers=12)]
    assert "without a chunk of 'vision'" in violations_of(spec, pb.Partition(chunks=chunks))["partition.chunks"]


def test_segments_that_were_asked_for_visit_every_rank() -> None:
    spec = cases.job(segments={"vision": 1})
    validate_partition(spec, segmented([2, 0, 3, 1]))
    found = violations_of(spec, segmented([2, 0, 2, 1]))["partition.chunks"]
    assert "ranks [2, 0, 2, 1]" in found
    assert "every rank once" in found


def test_segments_that_were_asked_for_are_counted() -> None:
    spec = cases.job(segments={"vision": 2})
    found = violations_of(spec, segmented([0, 1, 2, 3]))["partition.chunks"]
    assert "4 chunks of 'vision'" in found
    assert "2 segments of 4 chunks" in found
