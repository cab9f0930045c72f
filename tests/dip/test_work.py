"""Stage tasks of a batch: cells, edges with their sizes, costs of a chunk, groups."""

from __future__ import annotations

import pytest
import tiny_plan
from cases import batch, documents, job, module
from corners import FITTING
from dip.fallback import fitting_parts
from dip.job import Job
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from dip.work import Part, Work, chunks_of, static_bytes


def work_of(asked: pb.PlanRequest, parts: list[Part] | None = None) -> Work:
    if not asked.partition.chunks:
        asked.partition.CopyFrom(default_partition(asked.job))
    made = Job.from_spec(asked.job)
    chunks = chunks_of(made, asked.partition)
    return Work(
        job=made,
        forward_only=asked.batch.forward_only,
        chunks=chunks,
        parts=fitting_parts(made, asked.batch, chunks, [None] * made.ranks) if parts is None else parts,
    )


def part(m: int, *instances: tuple[int, int, int], microbatch: int = 0) -> Part:
    samples, indexes, sizes = zip(*instances, strict=True)
    return Part(module=m, microbatch=microbatch, samples=samples, instances=indexes, sizes=sizes)


def chained_work() -> Work:
    """Vision on ranks 0 and 1, language on rank 1: two samples, the images of the first in two parts."""
    spec = job([module("vision", 2, result_bytes_per_unit=16), module("language", 1, inputs=["vision"])], ranks=2)
    asked = pb.PlanRequest(job=spec, batch=batch([[{"vision": [10, 20], "language": [5]}, {"language": [6]}]]))
    for rank in (0, 1):
        asked.partition.chunks.add(module="vision", index=rank, rank=rank, first_layer=rank, num_layers=1)
    asked.partition.chunks.add(module="language", rank=1, num_layers=1)
    return work_of(asked, [part(0, (0, 0, 10)), part(0, (0, 1, 20)), part(1, (0, 0, 5)), part(1, (1, 0, 6))])


def test_cells_are_numbered_part_by_part_along_the_chunks() -> None:
    work = chained_work()
    assert work.num_cells == 6
    assert work.cell_part == [0, 0, 1, 1, 2, 3]
    assert [(chunk.module, chunk.index) for chunk in work.cell_chunk] == [(0, 0), (0, 1)] * 2 + [(1, 0)] * 2
    assert work.first_cell == [0, 2, 4, 5]
    assert [work.last_cell(p) for p in range(4)] == [1, 3, 4, 5]


def test_edges_know_what_they_carry_and_what_that_takes() -> None:
    """64 bytes a unit inside vision, 16 out of it; 5 us and 1000 bytes a microsecond between ranks."""
    edges = [(e.producer, e.consumer, e.num_bytes, e.hop_us, e.crosses) for e in chained_work().edges]
    assert edges == [
        (0, 1, 640, 6, True),
        (2, 3, 1280, 7, True),
        (1, 4, 160, 0, False),
        (3, 4, 320, 0, False),
    ]


def test_gradients_go_back_along_the_edges_after_their_own_forwards() -> None:
    """Rows 0 to 5 are forwards, 6 to 11 gradients; see the edges above for the hops."""
    work = chained_work()
    assert work.successors[:6] == [
        [(6, 0), (1, 6)],
        [(7, 0), (4, 0)],
        [(8, 0), (3, 7)],
        [(9, 0), (4, 0)],
        [(10, 0)],
        [(11, 0)],
    ]
    assert work.successors[6:] == [[], [(6, 6)], [], [(8, 7)], [(7, 0), (9, 0)], []]
    assert work.num_inputs == [0, 1, 0, 1, 2, 0, 2, 2, 2, 2, 1, 1]


def test_without_a_backward_nothing_goes_back() -> None:
    work = chained_work()
    evaluation = Work(job=work.job, forward_only=True, chunks=work.chunks, parts=work.parts)
    assert evaluation.successors == [[(1, 6)], [(4, 0)], [(3, 7)], [(4, 0)], [], [], *([] for _ in range(6))]
    assert not any(evaluation.cell_trains)
    assert evaluation.cell_rank == [0, 1, 0, 1, 1, 1]


def test_only_samples_that_a_consumer_has_travel_to_it() -> None:
    """One encoder part for two samples whose texts are apart: each text takes its own sample's units."""
    asked = FITTING["one_microbatch"]()
    parts = [part(0, (0, 0, 10), (1, 0, 20), (0, 1, 30)), part(1, (0, 0, 7)), part(1, (1, 0, 8))]
    assert work_of(asked, parts).links == [(0, 1, 40), (0, 2, 20)]


def test_parts_of_other_microbatches_are_never_linked() -> None:
    asked = FITTING["fewer_microbatches_than_ranks"]()
    parts = [
        part(0, (0, 0, 10)),
        part(1, (0, 0, 7)),
        part(0, (0, 0, 9), microbatch=1),
        part(1, (0, 0, 8), microbatch=1),
    ]
    work = work_of(asked, parts)
    assert work.links == [(0, 1, 10), (2, 3, 9)]
    assert work.groups == [0, 0, 1, 1]


def test_groups_join_what_shares_a_producer_and_are_numbered_by_their_first() -> None:
    asked = FITTING["one_microbatch"]()
    parts = [part(1, (1, 0, 8)), part(0, (0, 0, 10), (2, 0, 5)), part(1, (0, 0, 7)), part(1, (2, 0, 7))]
    assert work_of(asked, parts).groups == [0, 1, 1, 1]


def test_a_module_that_feeds_two_is_linked_to_both() -> None:
    work = work_of(FITTING["chain_that_skips_a_module"]())
    by_name = {
        (work.job.modules[work.parts[p].module].name, work.job.modules[work.parts[q].module].name)
        for p, q, _ in work.links
    }
    assert by_name == {("vision", "language"), ("vision", "video"), ("language", "video")}
    assert len(set(work.groups)) == 3


@pytest.mark.parametrize(
    ("name", "with_backward"),
    [
        ("frozen_encoder", {"language"}),
        ("forward_only", set()),
        ("frozen_language_after_a_trainable_encoder", {"vision", "language"}),
    ],
)
def test_who_has_a_backward(name: str, with_backward: set[str]) -> None:
    work = work_of(FITTING[name]())
    assert {work.module_of(cell).name for cell in range(work.num_cells) if work.has_backward(cell)} == with_backward


def test_static_bytes_of_each_rank() -> None:
    request = tiny_plan.tiny_request()
    made = Job.from_spec(request.job)
    assert static_bytes(made, chunks_of(made, tiny_plan.tiny_plan().partition)) == [100, 200]


def test_chunks_are_found_by_module_in_their_order_however_they_are_listed() -> None:
    asked = FITTING["loaded_partition"]()
    made = Job.from_spec(asked.job)
    straight = chunks_of(made, asked.partition)
    shuffled = pb.Partition(chunks=list(asked.partition.chunks)[::-1])
    assert chunks_of(made, shuffled) == straight
    assert [chunk.num_layers for chunk in straight[1]] == [1, 4, 2, 5]


def test_cells_of_equal_cost_are_of_one_kind() -> None:
    """Four chunks a module: vision's have 2 layers each, language's 3 each; rank 3 is slower than the others."""
    asked = FITTING["seven_microbatches_on_four_ranks"]()
    asked.batch.CopyFrom(batch([documents(1)[0]] * 3))
    asked.job.cluster.rank_speed[:] = [1.0, 1.0, 1.0, 0.5]
    work = work_of(asked)
    kind_of = dict(zip(work.cell_kind, work.cell_chunk, strict=True))
    assert len(work.kinds) == len(kind_of)
    for cell, chunk in enumerate(work.cell_chunk):
        kind, part = work.kinds[work.cell_kind[cell]], work.parts[work.cell_part[cell]]
        assert (kind.units, kind.squares) == (part.units, part.squares)
        assert (kind.chunk.module, kind.chunk.num_layers) == (chunk.module, chunk.num_layers)
        assert work.cost(cell) == work.job.cost_book.cost(chunk, units=part.units, squares=part.squares)
    like = {(c.module, c.num_layers, c.rank == 3) for c in work.cell_chunk}
    assert len(work.kinds) == len(like)
