"""Shows that JSON which is no message is refused with every path, and that nothing else is refused."""

from __future__ import annotations

import copy
import random

import corners
import pytest
from dip.planner.v1 import planner_pb2 as pb
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from planner_service.commands.failure import CommandError
from planner_service.commands.files import as_message
from planner_service.commands.shape import shape_faults


def faults(value: object) -> list[str]:
    return [str(fault) for fault in shape_faults(value, pb.PlanRequest.DESCRIPTOR)]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"job": 5}, "job: is 5, must be an object, a JobSpec"),
        ({"jobs": {}}, "jobs: is no field of PlanRequest; did you mean job?"),
        ({"xyz": {}}, "xyz: is no field of PlanRequest; there are job, batch, partition"),
        ({"batch": {"microbatches": {}}}, "batch.microbatches: is {}, must be a list"),
        ({"batch": {"microbatches": [None]}}, "batch.microbatches[0]: is None, must be an object, a Microbatch"),
        ({"job": {"cluster": {"ranks": "four"}}}, "job.cluster.ranks: is 'four', must be a whole number of 32 bits"),
        ({"job": {"cluster": {"ranks": 1.5}}}, "job.cluster.ranks: is 1.5, must be a whole number of 32 bits"),
        ({"job": {"cluster": {"ranks": True}}}, "job.cluster.ranks: is True, must be a whole number of 32 bits"),
        ({"job": {"cluster": {"ranks": 2**31}}}, "job.cluster.ranks: is 2147483648, must be a whole number"),
        ({"job": {"options": {"seed": 2**63}}}, "job.options.seed: is 9223372036854775808, must be a whole number"),
        ({"job": {"cluster": {"rank_speed": [1, "fast"]}}}, "job.cluster.rank_speed[1]: is 'fast', must be a number"),
        ({"job": {"cluster": {"rank_speed": [float("nan")]}}}, "job.cluster.rank_speed[0]: is nan, must be a number"),
        ({"job": {"options": {"split_backward": 1}}}, "job.options.split_backward: is 1, must be true or false"),
        ({"job": {"options": {"segments": [1]}}}, "job.options.segments: is [1], must be an object with a key"),
        (
            {"job": {"options": {"segments": {"vision": "x"}}}},
            "job.options.segments[\"vision\"]: is 'x', must be a whole number",
        ),
        ({"job": {"model": {"modules": [{"name": 5}]}}}, "job.model.modules[0].name: is 5, must be text"),
        (
            {"batch": {"microbatches": [{"samples": [{"instances": {"vision": [5]}}]}]}},
            'batch.microbatches[0].samples[0].instances["vision"]: is [5], must be an object, a Instances',
        ),
    ],
)
def test_a_wrong_type_or_name_is_a_fault(value: object, says: str) -> None:
    found = faults(value)
    assert len(found) == 1
    assert found[0].startswith(says)


def test_all_faults_are_found() -> None:
    found = faults({"job": {"cluster": {"ranks": "x", "rank": 1}}, "batch": 7, "extra": None})
    assert [fault.split(":")[0] for fault in found] == ["job.cluster.ranks", "job.cluster.rank", "batch", "extra"]


def test_null_means_not_set_and_whole_numbers_come_in_several_forms() -> None:
    value = {"job": {"cluster": {"ranks": 4.0, "memoryBytes": ["12", 13]}}, "partition": None}
    message = as_message(value, pb.PlanRequest(), "test")
    assert message.job.cluster.ranks == 4
    assert list(message.job.cluster.memory_bytes) == [12, 13]


def test_enumerated_kinds_are_names_or_numbers() -> None:
    value = {"ranks": [{"actions": [{"kind": "ACTION_KIND_FORWARD"}, {"kind": 2}, {"kind": "JUMP"}]}]}
    (fault,) = shape_faults(value, pb.Plan.DESCRIPTOR)
    assert fault.field == "ranks[0].actions[2].kind"


def test_what_the_library_alone_refuses_is_readable_too() -> None:
    with pytest.raises(CommandError, match=r"request\.json is no PlanRequest"):
        as_message({"job": {"model": {"modules": [{"name": "\ud800"}]}}}, pb.PlanRequest(), "request.json")


VALUES = [None, True, 0, -1, 1.5, 2**70, "", "x", "7", [], [[]], {}, {"a": 1}, float("inf"), "NaN", "\ud800"]


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(corners.FITTING)), seed=st.integers(0, 2**32), changes=st.integers(0, 4))
def test_spoiled_json_is_a_message_or_refused(name: str, seed: int, changes: int) -> None:
    rng = random.Random(seed)
    value = json_format.MessageToDict(corners.FITTING[name](), preserving_proto_field_name=True)
    for _ in range(changes):
        spoil(value, rng)
    refusal = refused(value)
    assert changes or not refusal
    # the library's own words are for text that is no Unicode; all else has a path and what is allowed
    assert "Failed to parse" not in refusal or "surrogate" in refusal


def refused(value: dict[str, object]) -> str:
    try:
        as_message(value, pb.PlanRequest(), "test")
    except CommandError as error:
        return str(error)
    return ""


def spoil(value: object, rng: random.Random) -> None:
    """Replace or add a value, somewhere."""
    while isinstance(value, dict | list) and value:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = rng.choice(keys)
        if rng.random() < 0.3 or not isinstance(value[key], dict | list):
            value[key] = copy.deepcopy(rng.choice(VALUES))
            return
        value = value[key]
    if isinstance(value, dict):
        value["unknown"] = 1
    elif isinstance(value, list):
        value.append(copy.deepcopy(rng.choice(VALUES)))
