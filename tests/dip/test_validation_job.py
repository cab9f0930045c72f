"""Shows that every field of a job is checked, and that the error names it, what it held and what is allowed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import cases
import corners
import pytest
from dip.errors import InvalidRequestError
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_job_spec
from dip.validation.limits import (
    MAX_COST_POINTS,
    MAX_LAYERS,
    MAX_MODULES,
    MAX_NAME_LENGTH,
    MAX_RANKS,
    MAX_STRATEGIES,
    MAX_VIOLATIONS,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def violations_of(spec: pb.JobSpec) -> dict[str, str]:
    with pytest.raises(InvalidRequestError) as caught:
        validate_job_spec(spec)
    return {violation.field: violation.description for violation in caught.value.violations}


@pytest.mark.parametrize("name", corners.FITTING)
def test_jobs_of_the_small_cases_are_valid(name: str) -> None:
    validate_job_spec(corners.FITTING[name]().job)


def point(spec: pb.JobSpec, i: int = 0) -> pb.CostPoint:
    return spec.model.modules[1].layers[0].cost.points[i]


MODULES, LAYERS = "job.model.modules", "job.model.modules[1].layers[0]"
CLUSTER, OPTIONS = "job.cluster", "job.options"

# What is done to a valid job, the field that the error names, and what its description says.
BROKEN: dict[str, tuple[Callable[[pb.JobSpec], object], str, str]] = {
    "no module": (lambda s: s.model.ClearField("modules"), MODULES, "at least one module"),
    "unnamed module": (lambda s: setattr(s.model.modules[1], "name", ""), f"{MODULES}[1].name", "is ''"),
    "long name": (
        lambda s: setattr(s.model.modules[1], "name", "x" * (MAX_NAME_LENGTH + 1)),
        f"{MODULES}[1].name",
        f"1 to {MAX_NAME_LENGTH} printable",
    ),
    "control character": (lambda s: setattr(s.model.modules[1], "name", "a\nb"), f"{MODULES}[1].name", r"a\nb"),
    "same name": (lambda s: setattr(s.model.modules[1], "name", "vision"), f"{MODULES}[1].name", f"{MODULES}[0]"),
    "input that is not there": (
        lambda s: s.model.modules[1].inputs.append("audio"),
        f"{MODULES}[1].inputs[1]",
        "is 'audio', must be a module listed before this one: ['vision']",
    ),
    "input of its own": (
        lambda s: s.model.modules[1].inputs.append("language"),
        f"{MODULES}[1].inputs[1]",
        "listed before",
    ),
    "input that comes later": (
        lambda s: s.model.modules[0].inputs.append("language"),
        f"{MODULES}[0].inputs[0]",
        "listed before",
    ),
    "input twice": (lambda s: s.model.modules[1].inputs.append("vision"), f"{MODULES}[1].inputs[1]", "named once"),
    "feeds nobody": (lambda s: s.model.modules[1].ClearField("inputs"), f"{MODULES}[0]", "an input of no module"),
    "no layers": (lambda s: s.model.modules[1].ClearField("layers"), f"{MODULES}[1].layers", "at least one run"),
    "zero layers": (lambda s: setattr(s.model.modules[1].layers[0], "count", 0), f"{LAYERS}.count", "is 0"),
    "negative layers": (lambda s: setattr(s.model.modules[1].layers[0], "count", -3), f"{LAYERS}.count", "is -3"),
    "many layers": (
        lambda s: s.model.modules[1].layers.add(count=MAX_LAYERS, cost=cases.layer_cost()),
        f"{MODULES}[1].layers",
        f"{MAX_LAYERS + 12} layers",
    ),
    "negative static bytes": (
        lambda s: setattr(s.model.modules[1].layers[0], "static_bytes", -1),
        f"{LAYERS}.static_bytes",
        "is -1",
    ),
    "negative output": (
        lambda s: setattr(s.model.modules[0], "output_bytes_per_unit", -1),
        f"{MODULES}[0].output_bytes_per_unit",
        "is -1",
    ),
    "negative result": (
        lambda s: setattr(s.model.modules[0], "result_bytes_per_unit", -5),
        f"{MODULES}[0].result_bytes_per_unit",
        "is -5",
    ),
    "no cost": (lambda s: s.model.modules[1].layers[0].ClearField("cost"), f"{LAYERS}.cost.points", "at least one"),
    "no points": (
        lambda s: s.model.modules[1].layers[0].cost.ClearField("points"),
        f"{LAYERS}.cost.points",
        "at least one",
    ),
    "point without units": (
        lambda s: setattr(point(s, 0), "units", 0),
        f"{LAYERS}.cost.points[0].units",
        "is 0, must be from 1",
    ),
    "points not ascending": (
        lambda s: setattr(point(s, 2), "units", 256),
        f"{LAYERS}.cost.points[2].units",
        "more than 256",
    ),
    "cost of NaN": (
        lambda s: setattr(point(s), "forward_us", math.nan),
        f"{LAYERS}.cost.points[0].forward_us",
        "is nan",
    ),
    "infinite cost": (
        lambda s: setattr(point(s, 1), "backward_input_us", math.inf),
        f"{LAYERS}.cost.points[1].backward_input_us",
        "is inf",
    ),
    "negative cost": (
        lambda s: setattr(point(s), "backward_weight_us", -0.5),
        f"{LAYERS}.cost.points[0].backward_weight_us",
        "is -0.5",
    ),
    "negative activations": (
        lambda s: setattr(point(s), "activation_bytes", -1),
        f"{LAYERS}.cost.points[0].activation_bytes",
        "is -1",
    ),
    "huge activations": (
        lambda s: setattr(point(s), "split_activation_bytes", 2**62),
        f"{LAYERS}.cost.points[0].split_activation_bytes",
        str(2**62),
    ),
    "attention of NaN": (
        lambda s: setattr(s.model.modules[1].layers[0].cost.attention, "forward_us", math.nan),
        f"{LAYERS}.cost.attention.forward_us",
        "is nan",
    ),
    "strategy called store": (
        lambda s: setattr(s.model.modules[1].layers[0].cost.strategies[0], "name", "store"),
        f"{LAYERS}.cost.strategies[0].name",
        "another name",
    ),
    "unnamed strategy": (
        lambda s: setattr(s.model.modules[1].layers[0].cost.strategies[0], "name", ""),
        f"{LAYERS}.cost.strategies[0].name",
        "printable",
    ),
    "strategy twice": (
        lambda s: s.model.modules[1].layers[0].cost.strategies.append(s.model.modules[1].layers[0].cost.strategies[0]),
        f"{LAYERS}.cost.strategies[1].name",
        "is 'recompute'",
    ),
    "strategy without points": (
        lambda s: s.model.modules[1].layers[0].cost.strategies[0].ClearField("points"),
        f"{LAYERS}.cost.strategies[0].points",
        "at least one",
    ),
    "strategy that costs less than nothing": (
        lambda s: setattr(s.model.modules[1].layers[0].cost.strategies[0].attention, "backward_input_us", -1),
        f"{LAYERS}.cost.strategies[0].attention.backward_input_us",
        "is -1",
    ),
    "no ranks": (lambda s: setattr(s.cluster, "ranks", 0), f"{CLUSTER}.ranks", f"is 0, must be from 1 to {MAX_RANKS}"),
    "negative ranks": (lambda s: setattr(s.cluster, "ranks", -4), f"{CLUSTER}.ranks", "is -4"),
    "absurd ranks": (lambda s: setattr(s.cluster, "ranks", 10**6), f"{CLUSTER}.ranks", "is 1000000"),
    "negative replicas": (lambda s: setattr(s.cluster, "replicas", -1), f"{CLUSTER}.replicas", "is -1"),
    "memory of other ranks": (
        lambda s: s.cluster.memory_bytes.extend([1, 2, 3]),
        f"{CLUSTER}.memory_bytes",
        "is '3 values', must be none, one for all ranks, or one for each of the 4 ranks",
    ),
    "negative memory": (lambda s: s.cluster.memory_bytes.append(-1), f"{CLUSTER}.memory_bytes[0]", "is -1"),
    "speed of other ranks": (lambda s: s.cluster.rank_speed.extend([1, 1]), f"{CLUSTER}.rank_speed", "2 values"),
    "no speed": (lambda s: s.cluster.rank_speed.extend([1, 0, 1, 1]), f"{CLUSTER}.rank_speed[1]", "is 0.0"),
    "negative speed": (lambda s: s.cluster.rank_speed.extend([1, 1, -1, 1]), f"{CLUSTER}.rank_speed[2]", "is -1.0"),
    "speed of NaN": (lambda s: s.cluster.rank_speed.append(math.nan), f"{CLUSTER}.rank_speed[0]", "is nan"),
    "negative latency": (lambda s: setattr(s.cluster, "link_latency_us", -1), f"{CLUSTER}.link_latency_us", "is -1"),
    "negative bandwidth": (
        lambda s: setattr(s.cluster, "link_bytes_per_us", -1),
        f"{CLUSTER}.link_bytes_per_us",
        "is -1",
    ),
    "segments of an unknown module": (
        lambda s: s.options.segments.update({"audio": 1}),
        f'{OPTIONS}.segments["audio"]',
        "one of the modules ['vision', 'language']",
    ),
    "no segments": (lambda s: s.options.segments.update({"vision": 0}), f'{OPTIONS}.segments["vision"]', "is 0"),
    "more segments than layers": (
        lambda s: s.options.segments.update({"vision": 3}),
        f'{OPTIONS}.segments["vision"]',
        "is 3, must be at most 2: vision has 8 layers for 4 ranks",
    ),
    "size of an unknown module": (
        lambda s: s.options.sub_microbatch_units.update({"audio": 1}),
        f'{OPTIONS}.sub_microbatch_units["audio"]',
        "one of the modules",
    ),
    "negative size": (
        lambda s: s.options.sub_microbatch_units.update({"vision": -1}),
        f'{OPTIONS}.sub_microbatch_units["vision"]',
        "is -1",
    ),
    "negative budget": (lambda s: setattr(s.options, "budget_ms", -1), f"{OPTIONS}.budget_ms", "is -1"),
    "endless budget": (lambda s: setattr(s.options, "budget_ms", 10**15), f"{OPTIONS}.budget_ms", str(10**15)),
    "negative evaluations": (
        lambda s: setattr(s.options, "max_evaluations", -1),
        f"{OPTIONS}.max_evaluations",
        "is -1",
    ),
    "negative seed": (lambda s: setattr(s.options, "seed", -1), f"{OPTIONS}.seed", "is -1"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_field_is_named(name: str) -> None:
    breaks, field, says = BROKEN[name]
    spec = cases.job()
    breaks(spec)
    found = violations_of(spec)
    assert says in found[field]


def test_a_field_is_named_from_where_the_job_stands_in_its_request() -> None:
    spec = cases.job()
    spec.cluster.ranks = 0
    with pytest.raises(InvalidRequestError) as caught:
        validate_job_spec(spec, path="spec")
    assert caught.value.violations[0].field == "spec.cluster.ranks"


def test_all_violations_are_reported_at_once() -> None:
    spec = cases.job()
    point(spec, 2).units = -7
    spec.cluster.ranks = 0
    spec.options.seed = -1
    assert set(violations_of(spec)) == {f"{LAYERS}.cost.points[2].units", f"{CLUSTER}.ranks", f"{OPTIONS}.seed"}


def test_the_list_of_violations_has_an_end() -> None:
    spec = cases.job()
    spec.model.modules[0].layers[0].cost.points.extend([pb.CostPoint(units=-1, forward_us=-1)] * 500)
    assert len(violations_of(spec)) == MAX_VIOLATIONS


@pytest.mark.parametrize(
    ("breaks", "field"),
    [
        (lambda s: s.model.modules.extend([s.model.modules[0]] * MAX_MODULES), MODULES),
        (
            lambda s: s.model.modules[1].layers[0].cost.points.extend([point(s)] * MAX_COST_POINTS),
            f"{LAYERS}.cost.points",
        ),
        (
            lambda s: s.model.modules[1].layers[0].cost.strategies.extend([pb.MemoryStrategy()] * MAX_STRATEGIES),
            f"{LAYERS}.cost.strategies",
        ),
    ],
    ids=["modules", "points", "strategies"],
)
def test_lists_have_a_largest_length(breaks: Callable[[pb.JobSpec], object], field: str) -> None:
    spec = cases.job()
    breaks(spec)
    with pytest.raises(InvalidRequestError) as caught:
        validate_job_spec(spec)
    assert any(v.field == field and "at most" in v.description for v in caught.value.violations)


def test_static_bytes_may_not_overflow_together() -> None:
    spec = cases.job()
    for module in spec.model.modules:
        module.layers[0].count = MAX_LAYERS
        module.layers[0].static_bytes = 2**53
    assert "in all layers together" in violations_of(spec)[MODULES]


def test_what_an_error_quotes_is_short_and_printable() -> None:
    spec = cases.job()
    name = "x\n" * 100_000
    spec.model.modules[1].name = name
    spec.model.modules[1].inputs.append(name)
    spec.options.segments[f"{name}z"] = 1
    spec.options.sub_microbatch_units["y\x1b"] = 1
    found = violations_of(spec)
    assert len(found) == 4
    assert all(len(text) < 600 and text.isprintable() for entry in found.items() for text in entry)
