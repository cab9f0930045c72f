"""Shows what the demo prints about its iterations, and that it says where it missed what it promises."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from examples.vlm.summary import Records, summary

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, *, planned_ms: int = 100, waited_us: int = 0, fallbacks: tuple[int, ...] = ()) -> Path:
    """Ten blocks of two iterations of both runs, 1F1B at 130 ms and a bit more in each block."""
    lines = []
    for run, base in (("planned", planned_ms), ("1f1b", 130)):
        for iteration in range(20):
            step_us = 1000 * (base + iteration // 4 + iteration % 3)
            lines.append(
                {
                    "run": run,
                    "block": iteration // 2,
                    "iteration": iteration,
                    "loss": 4.0 - 0.1 * iteration,
                    "text_only_loss": 4.1 - 0.1 * iteration,
                    "planned_us": step_us - 3000,
                    "measured_us": step_us - 1000,
                    "step_us": step_us,
                    "bubble_share": 0.1,
                    "fallback": run == "planned" and iteration in fallbacks,
                    "waited_us": [waited_us, 0],
                    "actions_us": [[5000, 9000], [7000]],
                }
            )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def printed(path: Path) -> str:
    return "\n".join(summary(Records.read(path)))


def test_a_good_run(tmp_path: Path) -> None:
    text = printed(write(tmp_path / "records.jsonl", fallbacks=(0, 1, 2)))
    assert "planned schedules are 2" in text
    assert "ran the planner's plan: 100.00%" in text  # the first three iterations do not count
    assert "MISSED" not in text
    assert "smallest 5.0 ms" in text
    assert "loss 3.700 -> 2.100; the same model without the images: 2.200" in text
    assert "differ by 0.0e+00 at most" in text


@pytest.mark.parametrize(("how", "missed"), [({"fallbacks": (7,)}, "94.12%"), ({"waited_us": 3000}, "1.4")])
def test_what_is_missed_is_said(tmp_path: Path, how: dict[str, Any], missed: str) -> None:
    lines = printed(write(tmp_path / "records.jsonl", **how)).splitlines()
    (line,) = [line for line in lines if "MISSED" in line]
    assert missed in line


def test_equal_times_are_not_called_faster(tmp_path: Path) -> None:
    assert "no difference that this spread supports" in printed(write(tmp_path / "records.jsonl", planned_ms=130))


def test_typical_iterations_are_those_near_the_median(tmp_path: Path) -> None:
    records = Records.read(write(tmp_path / "records.jsonl", fallbacks=(19,)))
    chosen = records.typical_iterations(6)
    assert sorted(chosen) == [13, 14, 15, 16, 17, 18]
    times = {record["iteration"]: record["step_us"] for record in records.planned}
    middle = sorted(times[iteration] for iteration in chosen)[2:4]
    assert abs(times[chosen[0]] - sum(middle) / 2) <= abs(times[chosen[-1]] - sum(middle) / 2)


def test_a_training_that_ended_at_once_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="no iterations after the first 3"):
        Records.read(path)
