"""Shows that traces are well formed: loadable, every compute action once, an arrow for each transfer, ranks by name."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from export_cases import COMPUTE, planned_request, reports_of

from planner_service.export import chrome_trace

SENDS = (5, 7)


def events(trace: dict[str, Any], phase: str, process: int) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == phase and event["pid"] == process]


def test_every_compute_action_is_one_slice_planned_and_measured() -> None:
    _, plan = planned_request()
    trace = json.loads(json.dumps(chrome_trace(plan, reports_of(plan, late_us=3))))
    actions = [(s.rank, a) for s in plan.ranks for a in s.actions if a.kind in COMPUTE]
    for process, late in ((1, 0), (2, 3)):
        slices = events(trace, "X", process)
        found = Counter((e["tid"], e["args"]["sub_microbatch"], e["args"]["chunk"], e["ts"], e["dur"]) for e in slices)
        wanted = Counter((r, a.sub_microbatch, a.chunk, a.start_us + late, a.end_us - a.start_us) for r, a in actions)
        assert found == wanted
        assert all(count == 1 for count in found.values())


def test_slices_of_a_rank_do_not_overlap() -> None:
    _, plan = planned_request()
    for rank in range(len(plan.ranks)):
        slices = [e for e in events(chrome_trace(plan), "X", 1) if e["tid"] == rank]
        ends = [0, *(e["ts"] + e["dur"] for e in slices)]
        assert all(end <= e["ts"] for end, e in zip(ends, slices, strict=False))


def test_every_transfer_is_an_arrow_between_its_two_tasks() -> None:
    _, plan = planned_request()
    trace = chrome_trace(plan, reports_of(plan))
    sends = [(s.rank, a.peer) for s in plan.ranks for a in s.actions if a.kind in SENDS]
    assert sends
    for process in (1, 2):
        starts, ends = events(trace, "s", process), events(trace, "f", process)
        assert [(a["tid"], b["tid"]) for a, b in zip(starts, ends, strict=True)] == sends
        assert all(a["id"] == b["id"] and a["ts"] <= b["ts"] for a, b in zip(starts, ends, strict=True))
        slices = events(trace, "X", process)
        for end in (*starts, *ends):
            assert any(e["tid"] == end["tid"] and e["ts"] <= end["ts"] <= e["ts"] + e["dur"] for e in slices)
    ids = [event["id"] for event in trace["traceEvents"] if event["ph"] == "s"]
    assert len(set(ids)) == len(ids)


def test_processes_and_threads_have_names() -> None:
    _, plan = planned_request()
    trace = chrome_trace(plan, reports_of(plan)[:2])
    names = [(e["pid"], e["args"]["name"]) for e in trace["traceEvents"] if e["ph"] == "M"]
    assert {(1, f"rank {rank}") for rank in range(4)} <= set(names)
    assert {name for pid, name in names if pid == 2 and name.startswith("rank")} == {"rank 0", "rank 1"}
    assert any(pid == 1 and name.startswith("planned: ") for pid, name in names)
    assert any(pid == 2 and name.startswith("measured: ") for pid, name in names)


def test_a_plan_alone_has_no_measured_part() -> None:
    _, plan = planned_request()
    assert {event["pid"] for event in chrome_trace(plan)["traceEvents"]} == {1}
