"""Shows that a description is read whole or answered with every fault of it, whatever the file holds."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

import pytest
from costs_tables import TABLES
from hypothesis import given, settings
from hypothesis import strategies as st

from planner_service.costs.description import (
    BatchDescription,
    ClusterDescription,
    ModuleDescription,
    WeightMemory,
)
from planner_service.costs.operators import Efficiency
from planner_service.costs.reading import read_description
from planner_service.costs.tables import MAX_FAULTS, DescriptionError

if TYPE_CHECKING:
    from collections.abc import Callable

Tables = dict[str, Any]


def test_a_description_holds_what_its_file_says() -> None:
    description = read_description(TABLES)
    assert description.gpu.name == "H100"
    assert description.tensor_parallel == 2
    assert description.cluster == ClusterDescription(ranks=2)
    assert description.batch == BatchDescription(microbatches=3, samples=2)
    assert (description.memory, description.efficiency) == (WeightMemory(), Efficiency())
    vision, language = description.modules
    assert (vision.name, vision.inputs, vision.result_width, vision.merge) == ("vision", (), 1024, 4)
    assert vision.transformer is not None
    assert (vision.transformer.layers, vision.transformer.causal) == (4, False)
    assert language.inputs == ("vision",)
    assert language.transformer is not None
    assert (language.transformer.groups, language.transformer.causal) == (4, True)


def test_every_table_counts() -> None:
    description = read_description(
        TABLES
        | {
            "split_backward": True,
            "strategies": ["recompute"],
            "memory": {"optimizer_shards": 8, "gradient_bytes": 2},
            "efficiency": {"products": 0.7, "launch_us": 5},
            "cluster": {"ranks": 2, "memory_gb": [40, 60.5], "rank_speed": [1, 0.5], "link_gb_per_s": 10},
        }
    )
    assert (description.split_backward, description.strategies) == (True, ("recompute",))
    assert description.memory.bytes_each(frozen=False) == 2 + 2 + 12 / 8
    assert description.memory.bytes_each(frozen=True) == 2
    assert (description.efficiency.products, description.efficiency.launch_us) == (0.7, 5.0)
    assert (description.cluster.memory_gb, description.cluster.rank_speed) == ((40.0, 60.5), (1.0, 0.5))


def test_gpus_of_the_description_and_of_the_caller() -> None:
    mine = {
        "bf16_tflops": 1,
        "memory_gb": 2,
        "memory_gb_per_s": 3,
        "nvlink_gb_per_s": 4,
        "host_gb_per_s": 5,
        "network_gb_per_s": 6,
    }
    own = read_description(TABLES | {"gpu": "mine", "gpus": {"mine": mine}})
    assert own.gpu.memory_gb == 2
    given_gpus = {"mine": read_description(TABLES).gpu}
    assert read_description(TABLES | {"gpu": "mine", "gpus": {"mine": mine}}, given_gpus).gpu.memory_gb == 80


def module(**change: object) -> Callable[[Tables], None]:
    return lambda tables: tables["modules"][1].update(change)


def top(**change: object) -> Callable[[Tables], None]:
    return lambda tables: tables.update(change)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (top(gpu="H1000"), "gpu is 'H1000', must be one of"),
        (top(gpu=800), "gpu is 800, must be text"),
        (lambda tables: tables.pop("gpu"), "gpu is missing, must be text"),
        (top(tensor_parallel=0), "tensor_parallel is 0, must be from 1"),
        (top(tensor_parallel=True), "tensor_parallel is True, must be a whole number"),
        (top(tensor_parallel=3), "modules[0].heads is 8, must be a multiple of tensor_parallel 3"),
        (top(tensor_paralel=2), "tensor_paralel is no known key; did you mean tensor_parallel?"),
        (top(strategies=["recompute", "compress"]), "strategies[1] is 'compress', must be one of recompute, offload"),
        (top(strategies=["offload", "offload"]), "strategies[1] is 'offload', must be named once"),
        (top(strategies="recompute"), "strategies is 'recompute', must be a list of text"),
        (top(strategies=[1]), "strategies[0] is 1, must be text"),
        (top(split_backward="yes"), "split_backward is 'yes', must be true or false"),
        (top(cluster={}), "cluster.ranks is missing, must be a whole number"),
        (top(cluster=[]), "cluster is a list of 0, must be a table"),
        (top(cluster={"ranks": -2}), "cluster.ranks is -2, must be from 1"),
        (top(cluster={"ranks": 2, "memory_share": 0.0}), "cluster.memory_share is 0.0, must be above 0"),
        (
            top(cluster={"ranks": 2, "memory_gb": [1, 2, 3]}),
            "cluster.memory_gb is a list of 3, must be none, one value",
        ),
        (top(cluster={"ranks": 2, "memory_gb": [80, -80]}), "cluster.memory_gb[1] is -80.0, must be from"),
        (top(cluster={"ranks": 2, "rank_speed": [1, 0]}), "cluster.rank_speed[1] is 0.0, must be from 0.001"),
        (top(cluster={"ranks": 2, "link_latency_us": -1}), "cluster.link_latency_us is -1, must be from 0"),
        (top(memory={"weight_bytes": -2}), "memory.weight_bytes is -2.0, must be from 0"),
        (top(memory={"optimizer_shards": 0}), "memory.optimizer_shards is 0, must be from 1"),
        (top(efficiency={"products": 1.2}), "efficiency.products is 1.2, must be from 0.001 to 1"),
        (top(efficiency={"product": 0.5}), "efficiency.product is no known key; did you mean products?"),
        (top(batch={"microbatches": 0}), "batch.microbatches is 0, must be from 1"),
        (top(batch={"microbatches": 60_000, "samples": 9}), "batch.microbatches is 60000, must be few enough that its"),
        (top(gpus=3), "gpus is 3, must be a table"),
        (top(gpus={"mine": {"memory_gb": 1}}), "gpus.mine.bf16_tflops is missing"),
        (top(modules=[]), "modules is a list of 0, must be a list of at least one table"),
        (lambda tables: tables.pop("modules"), "modules is missing, must be a list"),
        (top(modules={"vision": {}}), "modules is a table of 1, must be a list of at least one table"),
        (top(modules=["vision"]), "modules[0] is 'vision', must be a table"),
        (module(name=""), "modules[1].name is '', must be 1 to 128 printable characters"),
        (module(head_width=2**19), "modules[1].head_width is 524288, must be at most 1,048,576 in all heads together"),
        (module(heads=7), "modules[1].heads is 7, must be a divisor of width 1024"),
        (module(layers=1.5), "modules[1].layers is 1.5, must be a whole number"),
        (module(layer=6), "modules[1].layer is no known key; did you mean layers?"),
        (module(merge=0, result_width=8), "modules[1].merge is 0, must be from 1"),
        (module(merge=4), "modules[1].merge is 4, must be 1 where result_width is not given"),
        (module(instances=0), "modules[1].instances is 0, must be from 1"),
        (
            module(measured="costs.json"),
            "modules[1].measured is 'costs.json', must be without a shape of layers: there are layers, width",
        ),
        (module(inputs="vision"), "modules[1].inputs is 'vision', must be a list of text"),
    ],
)
def test_faults_name_the_field_what_it_held_and_what_is_allowed(change: Callable[[Tables], None], says: str) -> None:
    tables = copy.deepcopy(TABLES)
    change(tables)
    with pytest.raises(DescriptionError, match=re.escape(says)):
        read_description(tables)


def test_all_faults_are_told_at_once() -> None:
    tables = copy.deepcopy(TABLES)
    tables |= {"gpu": "H7", "cluster": {"ranks": 0}, "memory": {"weight_bytes": "two"}}
    tables["modules"][0]["layers"] = 0
    del tables["modules"][1]["width"]
    with pytest.raises(DescriptionError) as raised:
        read_description(tables)
    assert [fault.split(" ")[0] for fault in raised.value.faults] == [
        "modules[0].layers",
        "modules[1].width",
        "cluster.ranks",
        "memory.weight_bytes",
        "gpu",
    ]


def test_a_file_full_of_faults_is_answered_briefly() -> None:
    with pytest.raises(DescriptionError) as raised:
        read_description(TABLES | {f"key{i}": i for i in range(10_000)})
    assert len(raised.value.faults) == MAX_FAULTS + 1
    assert raised.value.faults[-1] == f"and {10_000 - MAX_FAULTS} more"


def test_a_module_is_either_computed_or_measured() -> None:
    measured = read_description(TABLES | {"modules": [{"name": "a", "measured": "costs.json"}]})
    assert measured.modules == (ModuleDescription(name="a", measured="costs.json"),)
    with pytest.raises(ValueError, match="measured is '', must be given where"):
        ModuleDescription(name="a")


HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([10**400, -(10**400), 2**63, 1 << 40_000, float("nan"), float("inf"), -0.0, 1e-320]),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["\x00", "a\nb", "\ud800", "x" * 10_000, "../../etc/passwd"]),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
    st.lists(st.just({}), max_size=2),
)


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of everything in a description."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [found for key, held in items for found in places(held, (*path, key))]


@settings(max_examples=200, deadline=None)
@given(place=st.sampled_from(places(TABLES)), value=HOSTILE)
def test_whatever_stands_anywhere_it_is_used_or_refused(place: tuple[Any, ...], value: object) -> None:
    tables = copy.deepcopy(TABLES)
    held: Any = tables
    for key in place[:-1]:
        held = held[key]
    held[place[-1]] = value
    refused_or_read(tables)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from([*TABLES, "memory", "efficiency", "gpus", "?"]), HOSTILE))
def test_whatever_a_file_holds_it_is_used_or_refused(tables: Tables) -> None:
    refused_or_read(tables)


def refused_or_read(tables: Tables) -> None:
    faults: tuple[str, ...] = ()
    try:
        read_description(tables)
    except DescriptionError as error:
        faults = error.faults
    assert all(len(fault) < 1000 and fault.isprintable() for fault in faults)
