"""What a chunk costs: its layers' sum rounded once, way by way, and one sum for chunks that are alike."""

from __future__ import annotations

import pytest
from cases import job, module
from dip.chunk_costs import layers_cost
from dip.job import Job
from dip.planner.v1 import planner_pb2 as pb
from dip.work import Chunk


def test_a_chunk_costs_what_its_layers_do_rounded_once() -> None:
    """Three layers of 0.5 us and 400 bytes a unit, 20 us each, at 64 units on a rank of speed 0.8."""
    spec = job([module("m", 3)], ranks=1, rank_speed=[0.8])
    spec.model.modules[0].layers[0].cost.attention.Clear()
    made = Job.from_spec(spec)
    chunk = Chunk(module=0, index=0, rank=0, first_layer=0, num_layers=3)
    cost = made.cost_book.cost(chunk, units=64, squares=64 * 64)
    assert (cost.forward_us, cost.backward_input_us, cost.backward_weight_us) == (195, 195, 147)  # 146.25
    assert cost.backward_us == 342  # 156 / 0.8 + 117 / 0.8 = 341.25: rounded together
    assert (cost.kept_bytes, cost.split_kept_bytes) == (3 * 400 * 64, 3 * 400 * 64)


def test_ways_run_layer_by_layer() -> None:
    made = Job.from_spec(job([module("m", 3)], ranks=1))
    chunk = Chunk(module=0, index=0, rank=0, first_layer=0, num_layers=3)
    way = (("recompute", 2), ("store", 1))
    cost = made.cost_book.cost(chunk, units=64, squares=0, way=way)
    assert cost.kept_bytes == (2 * 400 // 16 + 400) * 64
    assert cost.split_kept_bytes == 3 * 400 * 64
    assert cost.backward_input_us == 52 * (2 + 2 + 1)


def test_a_frozen_module_has_no_weight_half() -> None:
    made = Job.from_spec(job([module("a", 1), module("m", 1, inputs=["a"], frozen=True)], ranks=1))
    chunk = Chunk(module=1, index=0, rank=0, first_layer=0, num_layers=1)
    cost = made.cost_book.cost(chunk, units=64, squares=0)
    assert cost.backward_weight_us == 0
    assert cost.backward_us == cost.backward_input_us == 52


def test_a_strategy_that_a_layer_does_not_have_is_named() -> None:
    made = Job.from_spec(job([module("m", 3)], ranks=1))
    with pytest.raises(ValueError, match="strategy 'offload' of module 'm', layer 1: allowed are store, recompute"):
        layers_cost(made.modules[0], 0, (("store", 1), ("offload", 2)), units=1, squares=1)


def layered_job(*, rank_speed: list[float]) -> Job:
    """Four layers of one cost and static size, then two of another static size: two runs."""
    spec = job([module("m", 4)], ranks=len(rank_speed), rank_speed=rank_speed)
    last = pb.LayerRun(count=2, static_bytes=7)
    last.cost.CopyFrom(spec.model.modules[0].layers[0].cost)
    last.cost.points[0].forward_us *= 2
    spec.model.modules[0].layers.append(last)
    return Job.from_spec(spec)


def test_chunks_of_like_layers_on_ranks_of_one_speed_share_a_cost() -> None:
    book = layered_job(rank_speed=[1.0, 1.0, 0.5]).cost_book

    def cost(index: int, rank: int, first: int) -> object:
        chunk = Chunk(module=0, index=index, rank=rank, first_layer=first, num_layers=2)
        return book.cost(chunk, units=64, squares=64 * 64)

    assert cost(0, 0, 0) is cost(1, 1, 2)  # both are two layers of the first run
    assert cost(0, 0, 0) is cost(0, 0, 1)
    assert cost(0, 0, 0) != cost(2, 1, 4)  # of the second run
    assert cost(0, 0, 0) != cost(0, 0, 3)  # one of each
    assert cost(0, 0, 0) != cost(0, 2, 0)  # a slower rank


def test_sizes_and_ways_have_costs_of_their_own() -> None:
    book = layered_job(rank_speed=[1.0]).cost_book
    chunk = Chunk(module=0, index=0, rank=0, first_layer=0, num_layers=2)
    store = book.cost(chunk, units=64, squares=64)
    assert store == book.cost(chunk, units=64, squares=64, way=(("store", 2),))
    assert store.forward_us != book.cost(chunk, units=65, squares=64).forward_us
    assert store.forward_us != book.cost(chunk, units=64, squares=64_000_000).forward_us
    assert store.kept_bytes > book.cost(chunk, units=64, squares=64, way=(("recompute", 2),)).kept_bytes
