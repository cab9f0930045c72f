"""What the demo's iterations came to, in a few lines."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from examples.vlm.comparison import compare

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

WARM_UP_ITERATIONS = 3
LEAST_PLANNED_SHARE, MOST_WAITED_SHARE = 0.98, 0.01

Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Records:
    """Iterations of the two runs, in order, without those of the warm-up.

    Parameters
    ----------
    planned, usual
        As examples/compare_schedules.py wrote them.
    """

    planned: tuple[Record, ...]
    usual: tuple[Record, ...]

    @classmethod
    def read(cls, path: Path) -> Records:
        """Read the file of JSON lines.

        Raises
        ------
        ValueError
            Where the training was too short to say anything.
        """
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        late = [line for line in lines if line["iteration"] >= WARM_UP_ITERATIONS]
        planned, usual = (tuple(line for line in late if line["run"] == run) for run in ("planned", "1f1b"))
        if not planned or not usual:
            raise ValueError(f"{path}: no iterations after the first {WARM_UP_ITERATIONS}")
        return cls(planned=planned, usual=usual)

    def blocks(self) -> list[list[tuple[float, float]]]:
        """For each block, the times of each of its batches in both runs."""
        pairs = zip(self.planned, self.usual, strict=True)
        return [
            [(planned["step_us"], usual["step_us"]) for planned, usual in of_block]
            for _, of_block in groupby(pairs, key=lambda pair: pair[0]["block"])
        ]

    @property
    def planned_share(self) -> float:
        """Share of the planned run's iterations that ran the planner's plan."""
        return sum(not record["fallback"] for record in self.planned) / len(self.planned)

    @property
    def waited_share(self) -> float:
        """Share of the planned run's time in which ranks waited for schedules."""
        waited: float = sum(statistics.mean(record["waited_us"]) for record in self.planned)
        whole: float = sum(record["step_us"] for record in self.planned)
        return waited / whole

    @property
    def actions_us(self) -> list[int]:
        """Times of all compute actions of the planned run, on all ranks, ascending."""
        return sorted(us for record in self.planned for of_rank in record["actions_us"] for us in of_rank)

    def typical_iterations(self, among: int) -> list[int]:
        """The last so many planned iterations, those first that took about as long as the median."""
        late = [record for record in self.planned if not record["fallback"]][-among:]
        middle = statistics.median(record["step_us"] for record in late) if late else 0.0
        return [record["iteration"] for record in sorted(late, key=lambda record: abs(record["step_us"] - middle))]


def summary(records: Records) -> Iterator[str]:
    """Lay out what the demo claims, and what it does not."""
    planned, usual, blocks = records.planned, records.usual, records.blocks()
    yield f"{'':<26}{'planned':>16}{'1F1B':>16}"
    for title, key, unit in (("iteration", "step_us", 1000), ("  its actions", "measured_us", 1000)):
        cells = [statistics.median(record[key] for record in run) / unit for run in (planned, usual)]
        yield f"{title + ', median':<26}" + "".join(f"{cell:>13,.0f} ms" for cell in cells)
        spread = [_quartiles([record[key] / unit for record in run]) for run in (planned, usual)]
        yield f"{'  middle half':<26}" + "".join(f"{cell:>16}" for cell in spread)
    cells = [f"{statistics.median(record['bubble_share'] for record in run):.1%}" for run in (planned, usual)]
    yield f"{'bubble, median':<26}" + "".join(f"{cell:>16}" for cell in cells)
    last = max(1, len(planned) // 10)
    end = [statistics.mean(record["loss"] for record in run[-last:]) for run in (planned, usual)]
    yield f"{'loss at the end':<26}" + "".join(f"{cell:>16.3f}" for cell in end)
    blind = statistics.mean(record["text_only_loss"] for record in planned[-last:])
    yield ""
    yield f"loss {planned[0]['loss']:.3f} -> {end[0]:.3f}; the same model without the images: {blind:.3f}"
    apart = max(abs(a["loss"] - b["loss"]) for a, b in zip(planned, usual, strict=True))
    yield f"the two runs' losses on the same batch differ by {apart:.1e} at most: schedules do not change the training"
    yield f"{compare(blocks).verdict}, {len(planned)} batches in {len(blocks)} blocks"
    yield _kept("iterations that ran the planner's plan", records.planned_share, LEAST_PLANNED_SHARE, "at least")
    yield _kept("time that ranks waited for schedules", records.waited_share, MOST_WAITED_SHARE, "below")
    actions = records.actions_us
    yield f"compute actions: median {statistics.median(actions) / 1000:.1f} ms, smallest {actions[0] / 1000:.1f} ms"


def _kept(what: str, share: float, limit: float, word: str) -> str:
    good = share >= limit if word == "at least" else share < limit
    return f"{what}: {share:.2%} (wanted: {word} {limit:.0%}{'' if good else '; MISSED'})"


def _quartiles(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:,.0f}"
    low, _, high = statistics.quantiles(values, n=4)
    return f"{low:,.0f} .. {high:,.0f}"
