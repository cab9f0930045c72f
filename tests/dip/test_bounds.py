"""The bound by chains and loads, on batches small enough to see it; that none beats it is shown beside the search."""

from __future__ import annotations

from cases import job, module, request
from dip.bounds import chain_bound_us, fastest_times, longest_chains
from dip.fallback import fitting_parts
from dip.job import Job
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from dip.work import Work, chunks_of

FORWARD = 52  # 20 + 0.5 * 64
INPUT, WEIGHT = 52, 39


def work_of(spec: pb.JobSpec, microbatches: list[list[dict[str, list[int]]]], *, forward_only: bool = False) -> Work:
    for m in spec.model.modules:
        for run in m.layers:
            run.cost.attention.Clear()
            for strategy in run.cost.strategies:
                strategy.attention.Clear()
    asked = request(spec, microbatches, forward_only=forward_only)
    made = Job.from_spec(spec)
    chunks = chunks_of(made, default_partition(spec))
    parts = fitting_parts(made, asked.batch, chunks, [None] * made.ranks)
    return Work(job=made, forward_only=forward_only, chunks=chunks, parts=parts)


def chain(ranks: int, *, split: bool = False) -> pb.JobSpec:
    """One layer a rank, no time for hops."""
    spec = job([module("m", ranks)], ranks=ranks, split_backward=split)
    spec.cluster.link_latency_us = spec.cluster.link_bytes_per_us = 0
    return spec


def test_one_microbatch_takes_its_chain() -> None:
    assert chain_bound_us(work_of(chain(3), [[{"m": [64]}]])) == 3 * (FORWARD + INPUT + WEIGHT)


def test_with_split_backwards_only_the_last_weight_half_lengthens_the_chain() -> None:
    """Rank 0 has to run its weight half; on all others theirs fit beside the chain."""
    bound = chain_bound_us(work_of(chain(3, split=True), [[{"m": [64]}]]))
    assert bound == 3 * (FORWARD + INPUT)


def test_many_microbatches_take_the_load_of_a_rank_and_the_way_to_it() -> None:
    """The middle of three ranks: a forward before, then its load, then a backward after."""
    work = work_of(chain(3), [[{"m": [64]}]] * 8)
    one = FORWARD + INPUT + WEIGHT
    assert chain_bound_us(work) == 8 * one + 2 * FORWARD + 2 * (INPUT + WEIGHT)  # the last rank


def test_hops_lengthen_chains_there_and_back() -> None:
    spec = chain(2)
    spec.cluster.link_latency_us = 100
    assert chain_bound_us(work_of(spec, [[{"m": [64]}]])) == 2 * (FORWARD + INPUT + WEIGHT) + 200
    assert chain_bound_us(work_of(spec, [[{"m": [64]}]], forward_only=True)) == 2 * FORWARD + 100


def test_the_fastest_way_counts_in_each_phase() -> None:
    """A way with a quick forward, a way with a quick backward: the bound takes the best of both."""
    spec = chain(1)
    quick = pb.CostPoint(units=1, forward_us=0.5, backward_input_us=9.0)
    spec.model.modules[0].layers[0].cost.strategies.add(name="quick forward", points=[quick])
    work = work_of(spec, [[{"m": [64]}]])
    (times,) = fastest_times(work)
    assert (times.forward_us, times.gradient_us, times.total_us) == (32, INPUT + WEIGHT, 32 + INPUT + WEIGHT)
    assert chain_bound_us(work) == 32 + INPUT + WEIGHT


def test_split_backwards_give_the_gradient_sooner() -> None:
    (times,) = fastest_times(work_of(chain(1, split=True), [[{"m": [64]}]]))
    assert (times.forward_us, times.gradient_us, times.total_us) == (FORWARD, INPUT, FORWARD + INPUT + WEIGHT)


def test_chains_by_cell() -> None:
    work = work_of(chain(3), [[{"m": [64]}]])
    chains = longest_chains(work, fastest_times(work))
    back = INPUT + WEIGHT
    assert chains.forward_head_us == [0, FORWARD, 2 * FORWARD]
    assert chains.gradient_head_us == [3 * FORWARD + 2 * back, 3 * FORWARD + back, 3 * FORWARD]
    assert chains.backward_tail_us == [0, back, 2 * back]
    assert chains.forward_tail_us == [2 * FORWARD + 3 * back, FORWARD + 3 * back, 3 * back]


def test_nothing_to_do_takes_nothing() -> None:
    assert chain_bound_us(work_of(chain(2), [[], []])) == 0
