"""Shows what people read of a plan: figures, each rank's load and memory, and the steps of the search."""

from __future__ import annotations

import pytest
from dip.planner.v1 import planner_pb2 as pb
from tiny_plan import tiny_plan, tiny_request

from planner_service.commands.table import plan_table, readable_bytes


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (9_994, "9.99 kB"),
        (12_340, "12.3 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (73_600_000_000, "73.6 GB"),
        (2**62, "4612 PB"),
    ],
)
def test_sizes_have_three_digits(size: int, text: str) -> None:
    assert readable_bytes(size) == text


def test_figures_ranks_and_memory() -> None:
    request = tiny_request()
    request.job.cluster.memory_bytes.extend([0, 1000])
    lines = plan_table(request, tiny_plan()).splitlines()
    assert lines[0].split() == ["makespan", "296", "us"]
    assert lines[1].split() == ["lower", "bound", "280", "us"]
    assert lines[2].split() == ["gap", "5.71%"]
    assert lines[3].split() == ["tasks", "6", "of", "3", "sub-microbatches"]
    # 30 + 90 and 40 + 120 of 296 us
    assert lines[6].split() == ["0", "40.5%", "400", "B", "no", "limit"]
    assert lines[7].split() == ["1", "54.1%", "600", "B", "1.00", "kB"]
    assert len(lines) == 8


def test_one_limit_is_shown_for_every_rank() -> None:
    request = tiny_request()
    request.job.cluster.memory_bytes.append(2000)
    assert plan_table(request, tiny_plan()).count("2.00 kB") == 2


def test_steps_of_the_search() -> None:
    plan = tiny_plan()
    plan.search.CopyFrom(pb.SearchReport(elapsed_ms=1234, evaluations=56_789, optimal=True))
    plan.search.steps.add(elapsed_ms=3, engine="list", makespan_us=320)
    plan.search.steps.add(elapsed_ms=900, engine="annealing", makespan_us=296)
    text = plan_table(tiny_request(), plan)
    assert "(proven optimal)" in text
    assert "search: 1,234 ms, 56,789 schedules tried" in text
    assert text.splitlines()[-1].split() == ["annealing", "900", "ms", "296", "us"]


def test_a_fallback_is_called_so() -> None:
    plan = tiny_plan()
    plan.fallback = True
    assert "(the fixed fallback)" in plan_table(tiny_request(), plan)


def test_a_plan_without_work() -> None:
    plan = pb.Plan(ranks=[pb.RankSchedule(rank=0), pb.RankSchedule(rank=1)])
    lines = plan_table(tiny_request(), plan).splitlines()
    assert lines[2].split() == ["gap", "none"]
    assert lines[6].split() == ["0", "-", "0", "B", "no", "limit"]
