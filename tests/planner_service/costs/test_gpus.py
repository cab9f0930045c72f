"""Shows that known GPUs have the figures of their data sheets, and that users add others by the same form."""

from __future__ import annotations

import pytest

from planner_service.costs.gpus import find_gpu, known_gpus, read_gpus
from planner_service.costs.tables import DescriptionError

MINE = {
    "bf16_tflops": 500,
    "memory_gb": 64,
    "memory_gb_per_s": 3200,
    "nvlink_gb_per_s": 100,
    "host_gb_per_s": 32,
    "network_gb_per_s": 25.5,
    "node_gpus": 4,
}


def test_the_known_ones() -> None:
    figures = {name: (gpu.bf16_tflops, gpu.memory_gb, gpu.memory_gb_per_s) for name, gpu in known_gpus().items()}
    assert figures == {
        "A100": (312, 80, 2039),
        "H100": (989, 80, 3350),
        "H800": (989, 80, 3350),
        "H20": (148, 96, 4000),
        "H200": (989, 141, 4800),
        "B200": (2250, 180, 8000),
    }
    nvlink = {name: gpu.nvlink_gb_per_s for name, gpu in known_gpus().items()}
    assert nvlink == {"A100": 300, "H100": 450, "H800": 200, "H20": 450, "H200": 450, "B200": 900}


def test_a_gpu_of_ones_own_comes_before_a_known_one() -> None:
    own = read_gpus({"mine": MINE, "H100": MINE})
    assert find_gpu("mine", own).node_gpus == 4
    assert find_gpu("mine", own).network_gb_per_s == 25.5
    assert find_gpu("H100", own).bf16_tflops == 500
    assert find_gpu("H100", {}).bf16_tflops == 989


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("h100", "did you mean H100?"),
        ("H-800", "did you mean H800?"),
        ("TPU v5", "must be one of A100, H100, H800, H20, H200, B200; Others are added"),
        ("x" * 1000, "x..., must be one of"),
    ],
)
def test_an_unknown_one_is_answered_with_the_known(name: str, says: str) -> None:
    with pytest.raises(DescriptionError) as raised:
        find_gpu(name, {})
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"bf16_tflops": 0}, "mine.bf16_tflops is 0.0, must be from 0.001"),
        ({"memory_gb": -80}, "mine.memory_gb is -80.0, must be from"),
        ({"nvlink_gb_per_s": float("nan")}, "mine.nvlink_gb_per_s is nan, must be a number"),
        ({"host_gb_per_s": "64 GB/s"}, "mine.host_gb_per_s is '64 GB/s', must be a number"),
        ({"node_gpus": 8.0}, "mine.node_gpus is 8.0, must be a whole number"),
        ({"node_gpus": 0}, "mine.node_gpus is 0, must be from 1"),
        ({"memory": 80}, "mine.memory is no known key; did you mean memory_gb?"),
        ({"name": "other"}, "mine.name is no known key"),
    ],
)
def test_figures_that_cannot_be(change: dict[str, object], says: str) -> None:
    with pytest.raises(DescriptionError) as raised:
        read_gpus({"mine": MINE | change})
    assert says in str(raised.value)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(DescriptionError, match=r"gpus\.mine\.host_gb_per_s is missing, must be a number"):
        read_gpus({"mine": {key: value for key, value in MINE.items() if key != "host_gb_per_s"}}, "gpus")
