"""Shows that ``dip`` starts quickly, says what there is, and ends quietly where its reader or its user goes away."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from planner_service.cli import INTERRUPTED, PIPE_CLOSED, main

if TYPE_CHECKING:
    from pathlib import Path


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    code = "import sys, planner_service.cli; planner_service.cli.build_parser(); print(*sys.modules)"
    loaded = {name.partition(".")[0] for name in run_python(code).split()}
    assert not loaded & {"ortools", "numba", "numpy", "grpc", "pydantic"}


def test_checking_needs_no_solver() -> None:
    code = "import sys, planner_service.check, planner_service.commands.check; print(*sys.modules)"
    loaded = {name.partition(".")[0] for name in run_python(code).split()}
    assert not loaded & {"ortools", "numba", "numpy", "grpc", "pydantic"}


def test_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.strip() == f"dip-planner {version('dip-planner')}"


def test_its_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert all(command in out for command in ("serve", "plan", "check", "workload"))


@pytest.mark.parametrize("arguments", [[], ["fly"], ["check"], ["plan", "request.json"]])
def test_a_wrong_usage_is_explained(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: dip" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "planner_service.cli", "workload", "vlm-s", "--microbatches", "2"]
    ended = subprocess.run(command, check=False, stdout=write_end, stderr=subprocess.PIPE, text=True)
    os.close(write_end)
    assert (ended.returncode, ended.stderr) == (PIPE_CLOSED, "")


def test_an_interrupt_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("planner_service.commands.workload.write_text", interrupted)
    assert main(["workload", "vlm-s", "--microbatches", "1"]) == INTERRUPTED


def test_without_the_planners_packages_it_says_what_to_install(tmp_path: Path) -> None:
    request = str(tmp_path / "request.json")
    assert main(["workload", "vlm-s", "--microbatches", "1", "-o", request]) == 0
    # what an import finds on a node that only trains
    code = f"""
import sys
sys.modules["numba"] = sys.modules["ortools"] = None
from planner_service.cli import main
sys.exit(main(["plan", {request!r}, "-o", "-"]))
"""
    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.endswith("here; it comes with pip install 'dip-planner[planner]'\n")
    assert len(ended.stderr.splitlines()) == 1
