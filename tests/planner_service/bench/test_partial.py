"""Shows that finished cases survive a run that is cut short, and only for a run like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.bench.partial import Partial

if TYPE_CHECKING:
    from pathlib import Path

RUN = {"suites": ["paper"], "settings": {"seeds": [0]}}


def test_finished_cases_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "out.json.partial"
    Partial(path, RUN).add("a", 1.5, [{"method": "ours"}])
    assert Partial(path, RUN).finished == {"a": (1.5, [{"method": "ours"}])}


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "out.json.partial"
    first = Partial(path, RUN)
    first.add("a", 1.0, [])
    first.add("b", 1.0, [])
    path.write_text(path.read_text()[:-9])
    again = Partial(path, RUN)
    assert set(again.finished) == {"a"}
    again.add("b", 2.0, [])
    assert Partial(path, RUN).finished == {"a": (1.0, []), "b": (2.0, [])}


def test_another_run_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "out.json.partial"
    Partial(path, RUN).add("a", 1.0, [])
    assert Partial(path, {**RUN, "suites": ["sizes"]}).finished == {}
    assert Partial(path, RUN).finished == {}


def test_the_file_is_removed_when_all_is_in_the_result(tmp_path: Path) -> None:
    path = tmp_path / "out.json.partial"
    Partial(path, RUN).remove()
    assert not path.exists()
