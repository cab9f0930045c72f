"""Shows that the page about costs names every key of a description, every known GPU, and the defaults."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from planner_service.costs.description import (
    BatchDescription,
    ClusterDescription,
    Description,
    ModuleDescription,
    WeightMemory,
)
from planner_service.costs.gpus import Gpu, known_gpus
from planner_service.costs.operators import Efficiency
from planner_service.costs.transformer import Transformer

PAGE = (Path(__file__).parents[3] / "docs" / "costs.md").read_text()
# what is a table in the file, and what the module's own keys make up
TABLES = {"modules", "cluster", "memory", "efficiency", "batch", "transformer"}


@pytest.mark.parametrize(
    "kind",
    [Description, ModuleDescription, Transformer, ClusterDescription, BatchDescription, WeightMemory, Efficiency],
)
def test_every_key_is_there(kind: type) -> None:
    for field in dataclasses.fields(kind):
        assert field.name in TABLES or f"`{field.name}`" in PAGE


def test_every_figure_of_a_gpu_is_there() -> None:
    assert all(f"\n{field.name} = " in PAGE for field in dataclasses.fields(Gpu) if field.name != "name")
    assert ", ".join(known_gpus()) in PAGE


def test_efficiencies_are_the_defaults() -> None:
    default = Efficiency()
    said = (
        f"`products` and `attention` ({default.products} of the dense arithmetic)",
        f"`memory` ({default.memory})",
        f"`nvlink` ({default.nvlink})",
        f"`network` and `host` ({default.host})",
        f"`overlap` ({default.overlap:.0f}, below)",
        f"`launch_us` ({default.launch_us:.0f}, the fixed time of an operator)",
        f"`collective_us` ({default.collective_us:.0f}, that of an exchange)",
    )
    assert all(text in PAGE.replace("\n", " ") for text in said)
    assert (default.attention, default.network) == (default.products, default.host)
