"""Shows that what a job is said to cost is what its stage tasks take and keep."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import cases
import corners
import pytest
from dip.job import Job
from dip.partition import default_partition
from dip.parts import instances_of, make_part
from dip.work import Work, chunks_of

from planner_service.costs.account import JobCost, job_cost

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb


def accounted(request: pb.PlanRequest) -> tuple[JobCost, pb.Partition]:
    partition = request.partition if request.partition.chunks else default_partition(request.job, request.batch)
    return job_cost(request.job, request.batch, partition), partition


def uncut_work(request: pb.PlanRequest, partition: pb.Partition) -> Work:
    """Stage tasks of a batch whose microbatches all run whole."""
    job = Job.from_spec(request.job)
    parts = []
    for j, microbatch in enumerate(request.batch.microbatches):
        for module in job.modules:
            instances = instances_of(microbatch, module, range(len(microbatch.samples)))
            if instances:
                parts.append(make_part(module, j, instances))
    return Work(job=job, forward_only=request.batch.forward_only, chunks=chunks_of(job, partition), parts=parts)


@pytest.mark.parametrize("name", corners.FITTING)
def test_loads_of_ranks_are_their_stage_tasks(name: str) -> None:
    request = corners.FITTING[name]()
    cost, partition = accounted(request)
    work = uncut_work(request, partition)
    for rank in cost.ranks:
        busy = dict.fromkeys(rank.module_us, 0)
        for cell in range(work.num_cells):
            if work.cell_chunk[cell].rank == rank.rank:
                one = work.cost(cell)
                busy[work.module_of(cell).name] += one.forward_us + work.has_backward(cell) * one.backward_us
        assert rank.module_us == busy
        assert rank.total_us == sum(busy.values())
        assert rank.static_bytes == work.static_bytes[rank.rank]
        assert rank.memory_bytes == work.job.memory_bytes[rank.rank]
    all_of_it = 1.0 if work.num_cells else 0.0
    assert sum(rank.share for rank in cost.ranks) == pytest.approx(all_of_it)
    assert sum(module.share for module in cost.modules) == pytest.approx(all_of_it)


@pytest.mark.parametrize("name", corners.FITTING)
def test_ranks_together_do_what_modules_ask(name: str) -> None:
    request = corners.FITTING[name]()
    del request.job.cluster.rank_speed[:]
    cost, partition = accounted(request)
    for module in cost.modules:
        on_ranks = sum(rank.module_us[module.name] for rank in cost.ranks)
        # every task is rounded up to a microsecond
        tasks = 2 * len(partition.chunks) * cost.microbatches
        assert module.ways[0].total_us - 2 <= on_ranks <= module.ways[0].total_us + tasks + 2
    layers = sum(chunk.last_layer - chunk.first_layer + 1 for rank in cost.ranks for chunk in rank.chunks)
    assert layers == sum(module.num_layers for module in cost.modules)


def test_ways_to_run_layers() -> None:
    cost, _ = accounted(corners.one_microbatch())
    vision = cost.modules[0]
    store, recompute = vision.ways
    assert (store.name, recompute.name) == ("store", "recompute")
    assert recompute.backward_input_us > store.backward_input_us
    assert (recompute.forward_us, recompute.backward_weight_us) == (store.forward_us, store.backward_weight_us)
    units = vision.largest_units
    assert store.kept_bytes == store.split_kept_bytes == 8 * cases.KEPT_BYTES_PER_UNIT * units
    assert recompute.kept_bytes == 8 * cases.KEPT_BYTES_PER_UNIT // 16 * units
    assert recompute.split_kept_bytes == store.kept_bytes


def test_layers_without_a_way_store_in_it() -> None:
    request = corners.one_microbatch()
    before = accounted(request)[0].modules[0]
    bare = request.job.model.modules[0].layers.add()
    bare.CopyFrom(request.job.model.modules[0].layers[0])
    bare.count = 1
    del bare.cost.strategies[:]
    after = accounted(request)[0].modules[0]
    for one, other in zip(after.ways, before.ways, strict=True):
        assert one.kept_bytes - other.kept_bytes == before.ways[0].kept_bytes // 8


def test_evaluation_has_no_backward_and_keeps_nothing() -> None:
    request = corners.one_microbatch()
    request.batch.forward_only = True
    cost, _ = accounted(request)
    for way in (way for module in cost.modules for way in module.ways):
        assert way.forward_us > 0
        assert (way.backward_input_us, way.backward_weight_us, way.kept_bytes, way.split_kept_bytes) == (0, 0, 0, 0)


def test_a_frozen_encoder_has_a_forward_alone() -> None:
    request = cases.request(
        cases.job([cases.module("vision", 8, frozen=True), cases.module("language", 12, inputs=["vision"])]),
        cases.documents(3),
    )
    store = accounted(request)[0].modules[0].ways[0]
    assert store.forward_us > 0
    assert (store.backward_input_us, store.backward_weight_us, store.kept_bytes) == (0, 0, 0)


def test_a_module_that_a_batch_does_not_use() -> None:
    request = cases.request(cases.job(), [[{"language": [500]}]])
    vision, language = accounted(request)[0].modules
    assert (vision.units, vision.largest_units, vision.share, vision.ways[0].total_us) == (0, 0, 0.0, 0)
    assert vision.efficient_units >= 1
    assert (language.units, language.share, language.instance_units) == (500, 1.0, 500.0)


def test_a_batch_without_any_work() -> None:
    request = cases.request(cases.job(), [[], []])
    cost, _ = accounted(request)
    assert [rank.total_us for rank in cost.ranks] == [0, 0, 0, 0]
    assert [rank.share for rank in cost.ranks] == [0.0] * 4


def test_typical_instances_are_weighed_by_their_size() -> None:
    request = cases.request(cases.job(), [[{"vision": [100, 300], "language": [64]}], [{"language": [64]}]])
    vision = accounted(request)[0].modules[0]
    assert (vision.units, vision.largest_units) == (400, 400)
    assert vision.instance_units == (100**2 + 300**2) / 400


def test_the_account_is_plain_data() -> None:
    told = asdict(accounted(corners.one_microbatch())[0])
    assert told["ranks"][0]["module_us"].keys() == {"vision", "language"}
