"""Shows that useful work is counted as the formulas of transformers say, once for each instance."""

from __future__ import annotations

import pytest
from dip.planner.v1 import planner_pb2 as pb

from planner_service.bench.flops import batch_flops, utilisation
from planner_service.check.setups import LLAMA3_8B, PEAK_FLOP_PER_US, VIT_5B
from planner_service.check.workload import workload_request


def _batch(**units: list[int]) -> pb.Batch:
    instances = {name: pb.Instances(units=sizes) for name, sizes in units.items()}
    return pb.Batch(microbatches=[pb.Microbatch(samples=[pb.Sample(instances=instances)])])


def test_weights_count_two_operations_a_unit_three_times() -> None:
    # one token: the part of attention is 4 * width * 1/2 a layer
    of_weights = 6 * 32 * LLAMA3_8B.layer_weights
    assert batch_flops("vlm-s", _batch(language=[1])) == pytest.approx(of_weights + 3 * 32 * 2 * 4096)


def test_attention_is_within_an_instance_alone() -> None:
    one, two = batch_flops("vlm-s", _batch(vision=[2000])), batch_flops("vlm-s", _batch(vision=[1000, 1000]))
    assert one - two == pytest.approx(3 * 63 * 4 * VIT_5B.width * (2000**2 - 2 * 1000**2))


def test_language_sees_half_of_the_pairs() -> None:
    flops = [batch_flops("vlm-s", _batch(language=[units])) for units in (1000, 2000)]
    assert flops[1] - 2 * flops[0] == pytest.approx(3 * 32 * 4 * LLAMA3_8B.width * 0.5 * (2000**2 - 2 * 1000**2))


def test_weights_of_the_model_are_those_of_its_name() -> None:
    assert LLAMA3_8B.layers * LLAMA3_8B.layer_weights == pytest.approx(7.0e9, rel=0.01)  # 8.0e9 with embeddings


def test_utilisation_is_work_over_what_all_gpus_could_do() -> None:
    batch = workload_request("t2v-s", 2).batch
    at_peak_us = round(batch_flops("t2v-s", batch) / (4 * 4 * PEAK_FLOP_PER_US))
    assert utilisation("t2v-s", batch, 2 * at_peak_us, ranks=4) == pytest.approx(0.5, abs=1e-3)
    assert utilisation("t2v-s", pb.Batch(), 0, ranks=4) == 0
