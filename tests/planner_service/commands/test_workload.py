"""Shows that ``dip workload`` writes requests, to a file or to standard output, and names what it does not know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from planner_service.check.workload import workload_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_standard_output_and_files_get_the_same(dip: Callable[..., Any], tmp_path: Path) -> None:
    arguments = ("workload", "t2v-s", "--microbatches", 3, "--seed", 5, "--mix", "waves")
    ran = dip(*arguments)
    assert ran.code == 0
    assert json.loads(ran.out) == workload_json("t2v-s", 3, 5, "waves")
    assert dip(*arguments, "--out", tmp_path / "request.json").code == 0
    assert (tmp_path / "request.json").read_text() == ran.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("vlm-xxl",), "invalid choice: 'vlm-xxl'"),
        (("vlm-s", "--mix", "radio"), "invalid choice: 'radio'"),
        (("vlm-s", "--microbatches", "0"), "microbatches is 0, must be at least 1"),
        (("vlm-s", "--microbatches", "few"), "invalid int value: 'few'"),
        (("vlm-s", "--out", "/does/not/exist/request.json"), "cannot write /does/not/exist/request.json"),
    ],
)
def test_what_cannot_be_written_is_explained(dip: Callable[..., Any], arguments: tuple[str, ...], says: str) -> None:
    ran = dip("workload", *arguments)
    assert ran.code == 2
    assert says in ran.err
