"""Why a choice was made: what was tried, what came second, and what another number would have cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner_service.partition.choice import Choice


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """One choice, and what came of it.

    Parameters
    ----------
    choice
        The choice.
    makespan_us
        Sum of its quick schedules; None: it does not fit.
    num_tasks
        Forwards and backwards that it makes.
    score
        What choices are compared by: the makespan with an allowance for tasks; infinite where it does not fit.
    """

    choice: Choice
    makespan_us: int | None
    num_tasks: int
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
        How many were not, because their load alone takes longer than the best one's schedule.
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
        return sorted((t for t in self.tried if t.makespan_us is not None), key=lambda t: (t.score, t.choice))

    def text(self) -> str:
        """Say in a few lines what was chosen and why."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        ranking = self.ranking
        misfits = len(self.tried) - len(ranking)
        yield f"tried {len(self.tried)} choices; {misfits} did not fit, {self.skipped} were ruled out by their load"
        if self.chosen is None:
            return
        if not ranking or ranking[0].choice != self.chosen:
            yield "no choice of sizes fits: microbatches are cut into as few pieces as memory allows"
            return
        best = ranking[0]
        for m, name in enumerate(self.modules):
            yield f"{name}: {self._of_module(m)}"
        if self.chosen.slices > 1:
            yield f"groups for memory's sake: {self.chosen.slices} of the heaviest microbatch"
        yield f"quick schedule: {(best.makespan_us or 0) / 1000:.1f} ms, {best.num_tasks} tasks"
        if len(ranking) > 1:
            second = ranking[1]
            yield f"next best: {_more(second, best)} with {self._difference(second.choice)}"
        for what, other in self._alternatives():
            yield f"{what}: {_more(other, best)}"

    def _of_module(self, m: int) -> str:
        assert self.chosen is not None
        shape = "" if self.kept_partition else f"{self.chosen.shapes[m]}, "
        many = self.chosen.parts[m]
        return shape + (f"largest microbatch in {many} parts" if many > 1 else "microbatches whole")

    def _differences(self, other: Choice) -> list[str]:
        """Where a choice differs from the chosen one."""
        mine = self.chosen
        assert mine is not None
        found = []
        for m, name in enumerate(self.modules):
            if other.shapes[m] != mine.shapes[m]:
                found.append(f"{name} in {other.shapes[m]}")
            if other.parts[m] != mine.parts[m]:
                found.append(f"{name} in {other.parts[m]} part{'s' if other.parts[m] > 1 else ''}")
        if other.slices != mine.slices:
            found.append(f"{other.slices} group{'s' if other.slices > 1 else ''}")
        return found

    def _difference(self, other: Choice) -> str:
        return " and ".join(self._differences(other))

    def _alternatives(self) -> Iterator[tuple[str, Tried]]:
        """For each single thing changed, what the schedule takes then; best first."""
        for tried in self.ranking[1:]:
            differences = self._differences(tried.choice)
            if len(differences) == 1:
                yield f"instead {differences[0]}", tried


def _more(tried: Tried, best: Tried) -> str:
    """How much longer a schedule is."""
    assert tried.makespan_us is not None
    assert best.makespan_us is not None
    return f"{100.0 * (tried.makespan_us / best.makespan_us - 1.0):+.2f}%"
