"""Shows that pages fit narrow and wide terminals, put many replicas in few words, and give nobody's text power."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from dip.planner.v1 import planner_pb2 as pb
from rich.console import Console

from planner_service.watching.explanation import explanation
from planner_service.watching.failures import WatchError
from planner_service.watching.happened import happened
from planner_service.watching.job_page import job_page
from planner_service.watching.jobs_table import jobs_table
from planner_service.watching.rounds import rounds
from planner_service.watching.state import JobState, state_in_words, state_of

if TYPE_CHECKING:
    from rich.console import RenderableType

HOSTILE = "[red]x[/red] \x1b[31m :smile:"


def status(**fields: object) -> pb.JobStatus:
    made = pb.JobStatus(
        job_id="a-job-with-quite-a-long-name-2026-11-30",
        attempt=1_796_003_661_841_993,
        last_planned_iteration=123_456,
        last_reported_iteration=123_454,
        ranks=8,
        replicas=128,
        recent_reported_iterations=32,
        recent_fallback_iterations=3,
    )
    made.MergeFrom(pb.JobStatus(**fields))
    return made


def job(reason: str = "late") -> pb.GetJobResponse:
    made = pb.GetJobResponse(status=status())
    for replica in range(128):
        ran = made.recent.add(
            iteration=123_454, replica=replica, state=pb.ITERATION_STATE_PLANNED, makespan_us=870_000 + replica
        )
        ran.found_by, ran.lower_bound_us = "list: hill, waves of 1 a rank, turns first", 860_000
        for rank in range(8):
            late = replica < 100
            told = {"fallback": True, "fallback_reason": reason} if late else {}
            ran.ranks.add(rank=rank, measured_us=900_000, stalled_us=200_000 * late, **told)
    return made


def drawn(page: RenderableType, width: int, *, color: bool = False) -> str:
    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        height=40,
        force_terminal=color,
        color_system="standard" if color else None,
        markup=False,
    )
    console.print(page)
    return file.getvalue()


def test_a_narrow_terminal_shows_the_names_of_jobs_whole() -> None:
    text = drawn(jobs_table([status(job_id="vlm-blue")], width=60), 60)
    assert "vlm-blue" in text
    assert "attempt" not in text
    assert "attempt" in drawn(jobs_table([status(job_id="vlm-blue")], width=80), 80)


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_pages_fit_the_terminal(width: int) -> None:
    for page in (jobs_table([status()] * 3, width=width), job_page(job("why " * 100), width=width)):
        assert max(map(len, drawn(page, width).splitlines())) <= width


def test_a_narrow_table_cuts_no_name_and_no_number() -> None:
    text = drawn(jobs_table([status()], width=80), 80)
    header, first, *more = text.splitlines()
    assert [name in header for name in ("needs", "planned", "lead", "fell back", "state")] == [True] * 5
    assert [part in first for part in ("123455", "123456", "+2", "3 of 32", "ahead")] == [True] * 5
    assert "".join(line.split()[0] for line in (first, *more)) == status().job_id


def test_colours_say_nothing_that_words_do_not() -> None:
    page = job_page(job(), width=120)
    coloured = drawn(page, 120, color=True)
    assert "\x1b[33m" in coloured
    assert "\x1b" not in drawn(page, 120)


def test_text_of_others_has_no_power() -> None:
    for width in (80, 200):
        text = drawn(job_page(job(HOSTILE), width=width), width, color=True)
        assert "\x1b[31m" not in text
        assert r"\x1b[31m" in "".join(text.split("\n"))
        assert ":smile:" in text
    assert "[red]x[/red]" in explanation(job(HOSTILE).recent[0], status())


def test_many_replicas_are_few_words() -> None:
    (of,) = rounds(job().recent)
    assert happened(of, status()) == ["fell back on replica 0-99: late"]
    assert (of.makespan_us, of.measured_us, of.stalled_us, of.compares) == (870_127, 900_000, 200_000, False)
    assert of.gap == pytest.approx(870_127 / 860_000 - 1)


def test_some_replicas_that_wait_are_counted() -> None:
    planned = [pb.IterationStatus(iteration=123_456, replica=n, state=pb.ITERATION_STATE_PLANNED) for n in (0, 1)]
    waiting = [pb.IterationStatus(iteration=123_456, replica=n, state=pb.ITERATION_STATE_WAITING) for n in (2, 3, 4)]
    assert [happened(rounds(told)[0], status()) for told in (planned, waiting, planned + waiting)] == [
        ["planned"],
        ["waits for a plan"],
        ["3 of 5 replicas wait for a plan"],
    ]


def test_a_plan_that_is_the_fixed_schedule_is_told_once() -> None:
    found = job("the planner sent the fixed schedule")
    for of in found.recent:
        of.fallback, of.found_by = True, ""
    assert happened(rounds(found.recent)[0], status())[0].startswith("fell back on replica 0-99")
    for of in found.recent:
        of.found_by = "no search: not compiled"
    (told,) = rounds(found.recent)
    assert happened(told, status())[1] == "the plan for replica 0-127 is the fixed schedule (no search: not compiled)"
    for of in found.recent:
        of.ClearField("ranks")
        of.found_by = ""
    fixed = "the plan for replica 0-127 is the fixed schedule"
    assert happened(rounds(found.recent)[0], status()) == [fixed, "planned"]
    later = status(last_reported_iteration=123_455)
    assert happened(rounds(found.recent)[0], later) == [fixed, "no rank reported it"]
    assert "No rank reported it: the planner may have been away." in explanation(found.recent[0], later)


def test_many_reasons_are_counted() -> None:
    found = job()
    for rank in found.recent[0].ranks:
        rank.fallback_reason = f"reason {rank.rank}"
    (of,) = rounds(found.recent)
    phrases = happened(of, status())
    assert phrases[0] == "fell back on replica 0, rank 0: reason 0"
    assert phrases[-1] == "and for 6 more reasons"


def test_ranks_of_replicas_with_one_reason_are_counted() -> None:
    found = job()
    del found.recent[0].ranks[4:]
    (of,) = rounds(found.recent)
    assert happened(of, status()) == [
        "fell back on replica 0-99, 796 ranks: late",
        "1020 of 1024 ranks reported",
    ]


@pytest.mark.parametrize(
    ("fields", "state", "said"),
    [
        ({}, JobState.AHEAD, "planned 2 iterations ahead of what ranks have run"),
        ({"last_planned_iteration": 123_454}, JobState.BEHIND, "planning is behind: iteration 123455 has no plan yet"),
        ({"quiet_ms": 300_000}, JobState.IDLE, "idle: nothing heard of it for 5 min"),
        ({"closed": True, "quiet_ms": 300_000}, JobState.CLOSED, "closed"),
        (
            {"last_planned_iteration": -1, "last_reported_iteration": -1, "waiting_batches": 1},
            JobState.NEW,
            "registered, nothing planned yet, 1 batch waiting for a plan",
        ),
    ],
)
def test_a_job_does_one_thing(fields: dict[str, object], state: JobState, said: str) -> None:
    assert (state_of(status(**fields)), state_in_words(status(**fields))) == (state, said)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"makespan_us": 100, "lower_bound_us": 100}, "the planned time is the proven bound"),
        ({"makespan_us": 100, "lower_bound_us": 80}, "shorter by more than 20.0%"),
        ({"makespan_us": 100, "fallback": True, "found_by": "interrupted: out of time"}, "(interrupted: out of time)"),
    ],
)
def test_how_good_a_plan_is_is_explained(fields: dict[str, object], said: str) -> None:
    of = pb.IterationStatus(state=pb.ITERATION_STATE_PLANNED, search_ms=5, **fields)
    assert said in explanation(of, status())


def ran(*, measured_us: int, replica: int = 0) -> pb.IterationStatus:
    made = pb.IterationStatus(
        replica=replica, state=pb.ITERATION_STATE_PLANNED, makespan_us=1_000, lower_bound_us=1_000
    )
    made.ranks.add(measured_us=measured_us)
    return made


def test_what_ran_is_compared_with_the_plan_only_where_all_have_one() -> None:
    waiting = pb.IterationStatus(replica=1, state=pb.ITERATION_STATE_WAITING)
    assert [rounds(told)[0].compares for told in ([ran(measured_us=5)], [ran(measured_us=5), waiting])] == [True, False]


@pytest.mark.parametrize(
    ("measured_us", "said"), [(1_100, "10.0% more than planned"), (900, "10.0% less than planned")]
)
def test_more_and_less_than_planned_are_told_apart(measured_us: int, said: str) -> None:
    assert said in explanation(ran(measured_us=measured_us), status())


def test_a_long_reason_is_cut_in_a_page_and_told_whole_in_sentences() -> None:
    reason = " ".join(f"word{n}" for n in range(40))
    text = drawn(job_page(job(reason), width=80), 80)
    rows = text.splitlines()[[line.split()[:1] for line in text.splitlines()].index(["123454"]) :]
    assert (len(rows), rows[-1].rstrip().endswith("...")) == (3, True)
    assert reason in explanation(job(reason).recent[0], status())


def test_no_name_that_a_planner_tells_steers_a_terminal() -> None:
    told = pb.GetJobResponse(status=status(job_id=HOSTILE), recent=job().recent)
    told.spec.model.modules.add(name=HOSTILE)
    for of in told.recent:
        of.found_by = HOSTILE
    pages = (job_page(told, width=200), jobs_table([told.status], width=200))
    texts = [drawn(page, 200, color=True) for page in pages]
    texts += [explanation(told.recent[0], told.status), str(WatchError(f"no job of {HOSTILE}\n{HOSTILE}"))]
    assert [text for text in texts if "\x1b[31m" in text or r"\x1b[31m" not in text] == []
