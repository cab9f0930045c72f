"""Shows that cases ask for what their names say."""

from __future__ import annotations

import pytest

from planner_service.bench.case import CLEARED, GIVEN, HALVED, Case
from planner_service.check.workload import workload_request

CASE = Case(config="vlm-s", mix="documents", seed=3, microbatches=5, variant="4 images")


def test_the_name_says_all() -> None:
    assert CASE.name == "vlm-s, documents, seed 3, 5 microbatches, 4 images"


@pytest.mark.parametrize("memory", [GIVEN, CLEARED, HALVED])
@pytest.mark.parametrize("split", [True, False])
def test_the_request_is_the_workload_with_other_limits(memory: str, split: bool) -> None:
    request, workload = CASE.request(split=split, memory=memory), workload_request("vlm-s", 5, 3, "documents")
    assert request.batch == workload.batch
    assert request.job.options.split_backward == split
    given = list(workload.job.cluster.memory_bytes)
    expected = {GIVEN: given, CLEARED: [], HALVED: [limit // 2 for limit in given]}
    assert list(request.job.cluster.memory_bytes) == expected[memory]


def test_a_row_names_its_batch() -> None:
    assert CASE.row(value=1) == {"config": "vlm-s", "mix": "documents", "seed": 3, "microbatches": 5, "value": 1}
