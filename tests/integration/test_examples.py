"""Shows that the example and the demo run as a stranger starts them, answer mistakes, and leave nothing running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from waiting import until

ROOT = Path(__file__).parents[2]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
LIMIT_S = 240
# Plans are waited for, and ranks for each other, however busy the machine is.
PATIENT = {"DIP_SCHEDULE_WAIT_MS": "240000", "DIP_STEP_TIMEOUT_S": "480"}
PATIENT |= dict.fromkeys(("DIP_SOLVE_GRACE_MS", "DIP_LEASE_MS"), "600000")


def environment(**more: str) -> dict[str, str]:
    """What children get: the same as this process, without what it says of planners."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DIP_")}
    return kept | {"OMP_NUM_THREADS": "1"} | more


def python(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def marked_processes(mark: str) -> list[int]:
    """Processes that have a mark in their environment, as children of a marked one do."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                held = (folder / "environ").read_bytes()
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:  # ended meanwhile, or another user's
                continue
            if mark.encode() in held and state != "Z":
                found.append(int(folder.name))
    return found


def test_training_goes_on_where_no_planner_answers(tmp_path: Path) -> None:
    record = tmp_path / "run.jsonl"
    arguments = ["--iterations", "3", "--microbatches", "2", "--repeats", "1", "--record", str(record)]
    endpoint = f"unix://{tmp_path}/nobody.sock"
    ran = python(
        *TORCHRUN, "examples/train_vlm.py", *arguments, DIP_PLANNER_ENDPOINT=endpoint, DIP_CONNECT_WAIT_S="0.1"
    )
    assert ran.returncode == 0, ran.stderr
    assert f"no planner at {endpoint}: start one with `dip serve`" in ran.stderr
    assert "0 of 3 iterations ran a plan" in ran.stdout
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [0, 1, 2]
    assert all(line["fallback"] and line["measured_us"] > 0 for line in lines)
    assert lines[0]["loss"] > lines[2]["loss"] > 0
    assert len([line for line in ran.stdout.splitlines() if "fallback" in line]) >= 3


def test_without_torchrun_it_says_how_to_start_it() -> None:
    ran = python("examples/train_vlm.py")
    assert ran.returncode == 1
    assert "torchrun --standalone --nproc-per-node 2 examples/train_vlm.py" in ran.stderr


@pytest.mark.parametrize(("option", "value", "least"), [("--iterations", "0", 1), ("--seed", "-1", 0)])
def test_counts_that_are_none_are_refused_before_anything_starts(option: str, value: str, least: int) -> None:
    ran = python("-m", "examples.train_vlm", option, value)
    assert ran.returncode == 2
    assert f"argument {option}: '{value}'; must be a whole number, {least} or more" in ran.stderr


def test_a_missing_package_is_named_with_the_extra_that_has_it() -> None:
    code = "from examples.vlm.launch import require_packages; require_packages({'no_such_module': 'scikit-learn'})"
    ran = python("-c", code)
    assert ran.returncode == 1
    assert "scikit-learn missing" in ran.stderr
    assert "dip-planner[demo]" in ran.stderr


def test_the_demo_compares_draws_and_ends_everything_that_it_started(tmp_path: Path) -> None:
    mark = f"DEMO_TEST={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    arguments = ["--iterations", "8", "--block", "2", "--microbatches", "4", "--folder", str(tmp_path)]
    arguments += ["--seconds", str(LIMIT_S)]
    ran = python("-m", "examples.demo", *arguments, **PATIENT, **{name: value})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    until(lambda: not marked_processes(mark))  # a solver that was killed is gone as soon as it gets a core
    assert "iterations that ran the planner's plan: " in ran.stdout
    assert "95% interval" in ran.stdout
    assert "differ by" in ran.stdout
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    trace = json.loads((tmp_path / "trace.json").read_text())
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len([e for e in slices if e["pid"] == 1]) == len([e for e in slices if e["pid"] == 2]) > 0
    checked = python("-m", "planner_service.cli", "check", str(tmp_path / "request.json"), str(tmp_path / "plan.json"))
    assert checked.returncode == 0, checked.stdout
    lines = [json.loads(line) for line in (tmp_path / "iterations.jsonl").read_text().splitlines()]
    by_run = {run: [line["loss"] for line in lines if line["run"] == run] for run in ("planned", "1f1b")}
    assert by_run["planned"] == pytest.approx(by_run["1f1b"], rel=1e-4)
    assert len(by_run["planned"]) == 8


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_running(tmp_path: Path, number: signal.Signals) -> None:
    mark = f"DEMO_TEST={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "examples.demo", "--folder", str(tmp_path)],
        cwd=ROOT,
        env=environment(**{name: value}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        said = ""
        while "measuring what the layers cost" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        assert len(marked_processes(mark)) >= 4  # the demo, the planner, torchrun, two ranks
        demo.send_signal(number)
        rest = demo.stdout.read()
        assert demo.wait(LIMIT_S) == 130, said + rest
    assert "everything that it started has ended" in rest
    until(lambda: not marked_processes(mark))  # a solver ends itself when its planner does
