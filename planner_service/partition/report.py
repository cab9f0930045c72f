"""Why a choice was made: what was tried, what came second, and what another number would have cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner_service.partition.choice import Choice
    from planner_service.partition.trials import Outcome

MOST_ALTERNATIVES = 12
"""Lines about what was not chosen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """One choice, and what came of it.

    Parameters
    ----------
    choice
        The choice.
    outcome
        Its quick schedules.
    score
        What choices are compared by: the makespan with an allowance for tasks; infinite where it does not fit.
    """

    choice: Choice
    outcome: Outcome
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ChoiceReport:
    """What choosing did.

    Parameters
    ----------
    modules
        Names of the modules.
    kept_partition
        Whether the partition was given, and sizes alone were chosen.
    tried
        All choices that were tried, in turn.
    skipped
        How many were not, because their load alone is estimated to take longer than the best one's schedule.
    chosen
        The best one; None where nothing fitted.
    """

    modules: tuple[str, ...]
    kept_partition: bool
    tried: tuple[Tried, ...]
    skipped: int
    chosen: Choice | None

    @property
    def ranking(self) -> list[Tried]:
        """Choices that fit, best first."""
        return sorted((t for t in self.tried if t.outcome.makespan_us is not None), key=lambda t: (t.score, t.choice))

    def text(self) -> str:
        """Say in a few lines what was chosen and why."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        ranking = self.ranking
        misfits = len(self.tried) - len(ranking)
        tried = _count(len(self.tried), "choice")
        yield f"tried {tried}; did not fit: {misfits}; ruled out by their load: {self.skipped}"
        if self.chosen is None:
            yield "nothing fits"
            return
        best = next((tried for tried in ranking if tried.choice == self.chosen), None)
        if best is None:
            yield "no sizes that were tried fit: microbatches are cut into as few pieces as memory allows"
            return
        for m, name in enumerate(self.modules):
            many = self.chosen.parts[m]
            sizes = f"largest microbatch in {many} parts" if many > 1 else "no microbatch cut for its size"
            yield f"{name}: {sizes}" if self.kept_partition else f"{name}: {self.chosen.shapes[m]}, {sizes}"
        if self.chosen.slices > 1:
            yield f"for memory: {self.chosen.slices} groups of the microbatch that keeps most"
        yield f"its quick schedule: {_milliseconds(best)}, {best.outcome.num_tasks} tasks"
        for other in self.alternatives[:MOST_ALTERNATIVES]:
            yield f"with {self.difference(other.choice)}: {_more(other, best)}"

    @property
    def alternatives(self) -> list[Tried]:
        """Second best, then choices that differ from the chosen one in one thing, best first."""
        others = [tried for tried in self.ranking if tried.choice != self.chosen]
        return others[:1] + [tried for tried in others[1:] if len(self._differences(tried.choice)) == 1]

    def difference(self, other: Choice) -> str:
        """Where a choice differs from the chosen one, in words."""
        return " and ".join(self._differences(other))

    def _differences(self, other: Choice) -> list[str]:
        if self.chosen is None:
            return []
        found = []
        for m, name in enumerate(self.modules):
            if other.shapes[m] != self.chosen.shapes[m]:
                found.append(f"{name} in {other.shapes[m]}")
            if other.parts[m] != self.chosen.parts[m]:
                found.append(f"{name} in {_count(other.parts[m], 'part')}")
        if other.slices != self.chosen.slices:
            found.append(_count(other.slices, "group"))
        return found


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' if number > 1 else ''}"


def _milliseconds(tried: Tried) -> str:
    return f"{(tried.outcome.makespan_us or 0) / 1000:.1f} ms"


def _more(tried: Tried, best: Tried) -> str:
    """How much longer a schedule is."""
    return f"{100.0 * ((tried.outcome.makespan_us or 0) / max(1, best.outcome.makespan_us or 0) - 1.0):+.2f}%"
