"""Shows that a run measures each case once, goes on where it was cut short, and stops when its time is up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from planner_service.bench import run
from planner_service.bench.partial import Partial
from planner_service.bench.run import Run
from planner_service.bench.settings import Settings
from planner_service.bench.suites.suite import Suite, batches

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from planner_service.bench.case import Case, Row

SETTINGS = Settings(configs=("vlm-s", "t2v-s"), mixes=("web",), seeds=(0, 1), cores=1)
RUN = {"suites": ["scripted"]}


class Script:
    """A suite whose cases note that they were measured; the clock moves by 10 seconds with each."""

    def __init__(self) -> None:
        self.measured: list[str] = []
        self.fails_at = ""

    def suite(self) -> Suite:
        """Return the suite."""
        return Suite(name="scripted", about="", cases=lambda s: batches(s, seconds=10), measure=self.measure)

    def measure(self, case: Case, _: Settings) -> list[Row]:
        """Measure, or be cut short."""
        if case.name == self.fails_at:
            raise KeyboardInterrupt
        self.measured.append(case.name)
        return [case.row(method="ours", fault="")]

    def clock(self) -> float:
        """Seconds."""
        return 10.0 * len(self.measured)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    made = Script()
    monkeypatch.setattr(run, "SUITES", {"scripted": made.suite()})
    monkeypatch.setattr(run, "warm_up", lambda: None)
    return made


@pytest.fixture
def start(script: Script, tmp_path: Path) -> Callable[..., Run]:
    """Return a function that makes a run of the scripted suite."""

    def begin(say: Callable[[str], None] = lambda _: None, **more: float) -> Run:
        partial = Partial(tmp_path / "partial", RUN)
        return Run(["scripted"], SETTINGS, partial, say, clock=script.clock, **more)

    return begin


def test_every_case_is_measured_once_seed_by_seed(script: Script, start: Callable[..., Run]) -> None:
    result = start().result()
    assert script.measured == [
        f"{config}, web, seed {seed}, 16 microbatches" for seed in (0, 1) for config in ("vlm-s", "t2v-s")
    ]
    assert [(row["config"], row["seed"]) for row in result.rows("scripted")] == [
        ("vlm-s", 0),
        ("t2v-s", 0),
        ("vlm-s", 1),
        ("t2v-s", 1),
    ]
    assert result.suites["scripted"].unfinished == ()
    assert result.suites["scripted"].settings == {**SETTINGS.json(), "jobs": 1}


def test_a_run_goes_on_where_it_was_cut_short(script: Script, start: Callable[..., Run]) -> None:
    script.fails_at = "vlm-s, web, seed 1, 16 microbatches"
    with pytest.raises(KeyboardInterrupt):
        start().result()
    script.fails_at, known, said = "", list(script.measured), list[str]()
    result = start(said.append).result()
    assert len(known) == 2
    assert script.measured == [*known, "vlm-s, web, seed 1, 16 microbatches", "t2v-s, web, seed 1, 16 microbatches"]
    assert len(result.rows("scripted")) == 4
    assert any(line.startswith("2 cases were measured before") for line in said)


def test_no_case_is_started_when_the_time_is_up(script: Script, start: Callable[..., Run]) -> None:
    result = start(time_limit_s=15).result()
    assert len(script.measured) == 2
    assert result.suites["scripted"].unfinished == (
        "scripted: vlm-s, web, seed 1, 16 microbatches",
        "scripted: t2v-s, web, seed 1, 16 microbatches",
    )


def test_it_says_how_long_it_will_take(start: Callable[..., Run]) -> None:
    said: list[str] = []
    start(said.append).result()
    assert said[0] == "scripted: 4 cases, about 40 s"
    assert said[1].startswith("[1/4] scripted: vlm-s, web, seed 0, 16 microbatches: ")
    assert said[1].endswith("about 30 s left")


@pytest.mark.parametrize("jobs", [1, 2])
def test_suites_about_time_come_last_alone_and_with_all_cores(
    monkeypatch: pytest.MonkeyPatch, script: Script, tmp_path: Path, jobs: int
) -> None:
    asked: list[tuple[str, int]] = []

    def measure(case: Case, settings: Settings) -> list[Row]:
        asked.append((case.name, settings.cores))
        return script.measure(case, settings)

    alone = Suite(name="alone", about="", cases=lambda s: batches(s, seconds=10), measure=measure, alone=True)
    monkeypatch.setattr(run, "SUITES", {"alone": alone, "scripted": script.suite()})
    others = ["scripted"] if jobs == 1 else []  # other processes know nothing of a scripted suite
    partial = Partial(tmp_path / "alone", {"suites": ["alone", *others]})
    said: list[str] = []
    result = Run(["alone", *others], SETTINGS, partial, said.append, jobs=jobs).result()
    assert [name for name, _ in asked] == script.measured[-4:]
    assert {cores for _, cores in asked} == {jobs}
    assert (result.suites["alone"].settings["jobs"], result.suites["alone"].settings["cores"]) == (1, jobs)
    assert said[0] == "alone: 4 cases, about 40 s"


def test_other_processes_measure_side_by_side(tmp_path: Path) -> None:
    settings = Settings(configs=("vlm-s",), mixes=("text",), microbatches=2, budget_ms=20, cores=1, seeds=(0, 1))
    result = Run(["memory"], settings, Partial(tmp_path / "partial", RUN), lambda _: None, jobs=2).result()
    assert [row["seed"] for row in result.rows("memory")] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert result.suites["memory"].faults == []
