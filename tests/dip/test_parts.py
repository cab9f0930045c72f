"""Sub-microbatches that keep groups of pieces together, cut only where the job asks for it."""

from __future__ import annotations

from cases import batch, job
from dip.job import Job
from dip.parts import group_parts, instances_of, make_part, pieces_of
from dip.work import Part

ASKED = batch([[{"vision": [5, 6, 7], "language": [20]}, {"language": [30, 40]}, {"vision": [9], "language": [10]}]])


def shape(parts: list[Part]) -> list[tuple[int, list[tuple[int, int, int]]]]:
    return [(p.module, list(zip(p.samples, p.instances, p.sizes, strict=True))) for p in parts]


def test_a_whole_microbatch_is_one_part_a_module() -> None:
    parts = group_parts(Job.from_spec(job()), ASKED, [[[0, 1, 2, 3]]])
    assert shape(parts) == [
        (0, [(0, 0, 5), (0, 1, 6), (0, 2, 7), (2, 0, 9)]),
        (1, [(0, 0, 20), (1, 0, 30), (1, 1, 40), (2, 0, 10)]),
    ]
    assert (parts[0].units, parts[0].squares) == (27, 25 + 36 + 49 + 81)


def test_groups_are_cut_apart_and_modules_without_work_left_out() -> None:
    parts = group_parts(Job.from_spec(job()), ASKED, [[[1, 2], [0, 3]]])
    assert [(p.module, p.samples) for p in parts] == [(1, (1, 1)), (0, (0, 0, 0, 2)), (1, (0, 2))]


def test_instances_are_pieces_of_their_own_where_only_the_loss_module_has_work() -> None:
    assert pieces_of(Job.from_spec(job()), ASKED.microbatches[0]) == [
        {0: [(0, 0, 5), (0, 1, 6), (0, 2, 7)], 1: [(0, 0, 20)]},
        {1: [(1, 0, 30)]},
        {1: [(1, 1, 40)]},
        {0: [(2, 0, 9)], 1: [(2, 0, 10)]},
    ]
    parts = group_parts(Job.from_spec(job()), ASKED, [[[2], [1]]])
    assert shape(parts) == [(1, [(1, 1, 40)]), (1, [(1, 0, 30)])]


def test_sizes_that_are_asked_for_cut_between_instances_and_larger_ones_stand_alone() -> None:
    spec = job(sub_microbatch_units={"vision": 11, "language": 25})
    parts = group_parts(Job.from_spec(spec), ASKED, [[[0, 1, 2, 3]]])
    assert [p.sizes for p in parts if p.module == 0] == [(5, 6), (7,), (9,)]
    assert [p.sizes for p in parts if p.module == 1] == [(20,), (30,), (40,), (10,)]


def test_an_empty_microbatch_has_no_parts() -> None:
    assert group_parts(Job.from_spec(job()), batch([[]]), [[]]) == []


def test_an_empty_list_of_instances_is_no_work() -> None:
    asked = batch([[{"vision": [], "language": [3]}]])
    parts = group_parts(Job.from_spec(job()), asked, [[[0]]])
    assert [p.module for p in parts] == [1]


def test_instances_are_listed_sample_by_sample() -> None:
    view = Job.from_spec(job()).modules[0]
    listed = instances_of(ASKED.microbatches[0], view, [2, 0])
    assert listed == [(2, 0, 9), (0, 0, 5), (0, 1, 6), (0, 2, 7)]
    assert make_part(view, 4, listed[:2]) == Part(
        module=0, microbatch=4, samples=(2, 0), instances=(0, 0), sizes=(9, 5)
    )
