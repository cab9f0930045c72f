"""A suite: a list of cases, and how one is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner_service.bench.case import Case, Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner_service.bench.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class Suite:
    """A suite of measurements.

    Parameters
    ----------
    name
        As the command line calls it.
    about
        What it shows, in a line.
    cases
        What is measured with some settings; those that matter most come first.
    measure
        Measures a case; an importable function, so that it can run in another process.
    alone
        Whether a case must be alone on the machine, because it is about time: then it has all cores.
    """

    name: str
    about: str
    cases: Callable[[Settings], list[Case]]
    measure: Callable[[Case, Settings], list[Row]]
    alone: bool = False


def batches(settings: Settings, *, seconds: float, variant: str = "") -> list[Case]:
    """All batches of the settings, seed by seed, so that a run cut short has seen every set-up."""
    return [
        Case(
            config=config,
            mix=mix,
            seed=seed,
            microbatches=settings.microbatches,
            variant=variant,
            seconds=seconds,
        )
        for seed in settings.seeds
        for mix in settings.mixes
        for config in settings.configs
    ]
