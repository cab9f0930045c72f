"""Shows that every sample is checked against the model, that sums cannot overflow, and that it is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cases
import corners
import pytest
from dip.errors import InvalidRequestError
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_batch
from dip.validation.limits import MAX_MICROBATCHES, MAX_UNITS, MAX_VIOLATIONS
from lines_run import lines_run

if TYPE_CHECKING:
    from collections.abc import Sequence


def violations_of(spec: pb.JobSpec, batch: pb.Batch) -> dict[str, str]:
    with pytest.raises(InvalidRequestError) as caught:
        validate_batch(spec, batch)
    found: dict[str, str] = {}
    for violation in caught.value.violations:
        found[violation.field] = "; ".join([*filter(None, [found.get(violation.field)]), violation.description])
    return found


def broken(microbatches: Sequence[Sequence[cases.Sample]], spec: pb.JobSpec | None = None) -> dict[str, str]:
    return violations_of(spec or cases.job(), cases.batch(microbatches))


@pytest.mark.parametrize("name", corners.FITTING)
def test_batches_of_the_small_cases_are_valid(name: str) -> None:
    request = corners.FITTING[name]()
    validate_batch(request.job, request.batch)


def test_a_batch_has_a_microbatch() -> None:
    assert "at least one microbatch" in broken([])["batch.microbatches"]


def test_a_batch_has_a_largest_number_of_microbatches() -> None:
    batch = pb.Batch(microbatches=[pb.Microbatch()] * (MAX_MICROBATCHES + 1))
    assert f"at most {MAX_MICROBATCHES}" in violations_of(cases.job(), batch)["batch.microbatches"]


def test_a_sample_has_an_instance_of_the_last_module() -> None:
    found = broken([[], [{"language": [5]}, {"vision": [5]}]])
    assert found['batch.microbatches[1].samples[1].instances["vision"]'].startswith('is "consumed by no instance')
    assert "one for the last module, 'language'" in found["batch.microbatches[1].samples[1].instances"]


@pytest.mark.parametrize("sample", [{}, {"language": []}])
def test_a_sample_is_not_empty(sample: cases.Sample) -> None:
    assert "for the modules []" in broken([[sample]])["batch.microbatches[0].samples[0].instances"]


def test_a_sample_has_an_instance_of_one_consumer_of_each_of_its_modules() -> None:
    modules = [
        cases.module("audio", 4),
        cases.module("vision", 4, inputs=["audio"]),
        cases.module("language", 4, inputs=["vision"]),
    ]
    found = broken([[{"audio": [3], "language": [5]}]], cases.job(modules))
    assert list(found) == ['batch.microbatches[0].samples[0].instances["audio"]']
    assert "['vision']" in found['batch.microbatches[0].samples[0].instances["audio"]']


@pytest.mark.parametrize("units", [[1], []])
def test_an_unknown_module_is_named(units: list[int]) -> None:
    found = broken([[{"language": [5], "smell": units}]])
    assert "one of the modules ['vision', 'language']" in found['batch.microbatches[0].samples[0].instances["smell"]']


@pytest.mark.parametrize("units", [0, -1, -(2**63), 2**40, 2**63 - 1])
def test_units_are_positive_and_not_absurd(units: int) -> None:
    found = broken([[{"language": [5]}, {"language": [7, units]}]])
    description = found['batch.microbatches[0].samples[1].instances["language"].units[1]']
    assert description == f"is {units}, must be from 1 to {MAX_UNITS}"


def test_the_units_of_a_microbatch_have_a_limit_together() -> None:
    found = broken([[{"language": [MAX_UNITS]}, {"language": [1]}]])
    assert f"{MAX_UNITS + 1} units of language" in found["batch.microbatches[0].samples"]


def test_sums_that_would_overflow_are_refused() -> None:
    spec = cases.job()
    spec.model.modules[1].layers[0].cost.points[2].forward_us = 1e12
    found = broken([[{"language": [MAX_UNITS]}]], spec)
    assert "microseconds of work and transfers" in found["batch.microbatches"]

    spec = cases.job()
    spec.model.modules[1].layers[0].cost.points[2].activation_bytes = 2**53
    found = broken([[{"language": [MAX_UNITS]}]], spec)
    assert "bytes kept" in found["batch.microbatches"]

    spec = cases.job()
    spec.model.modules[0].result_bytes_per_unit = 2**53
    found = broken([[{"vision": [MAX_UNITS], "language": [1]}]], spec)
    assert "bytes between ranks" in found["batch.microbatches"]


def test_a_slow_link_counts_among_the_sums() -> None:
    spec = cases.job()
    spec.cluster.link_latency_us = 10**9
    instances = {"vision": [1] * 3000, "language": [1] * 3000}
    assert "work and transfers" in broken([[instances]], spec)["batch.microbatches"]


def test_the_list_of_violations_has_an_end() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        validate_batch(cases.job(), cases.batch([[{"language": [-1] * 10_000}]]))
    assert len(caught.value.violations) == MAX_VIOLATIONS


def test_a_batch_eight_times_as_large_takes_about_eight_times_the_work() -> None:
    samples: list[cases.Sample] = [{"vision": [2704] * 5, "language": [900]} for _ in range(10)]
    spec = cases.job()

    def took(count: int) -> int:
        batch = cases.batch([samples] * count)
        return lines_run(lambda: validate_batch(spec, batch))

    assert took(128) < 10 * took(16)
