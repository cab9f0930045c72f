"""What to measure, and with how much effort."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from planner_service.check.setups import SETUPS
from planner_service.check.workload import MIXES
from planner_service.pool.cores import usable_cores

if TYPE_CHECKING:
    from collections.abc import Iterable

PAPER_CONFIGS = ("vlm-s", "vlm-m", "vlm-l", "t2v-s", "t2v-l")
"""The five set-ups that the paper measured on GPUs; larger ones it simulated."""

PLAIN_MIXES = ("web", "documents")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Settings of a run.

    Parameters
    ----------
    configs, mixes, seeds
        Whose batches.
    microbatches
        Of each batch, at least 1.
    budget_ms
        Search time of each of our plans, at least 1.
    cores
        That our search may use.
    baselines
        Where further baselines are, as ``module:NAME`` of a mapping by name.

    Raises
    ------
    ValueError
        If a setting is out of its range; the message names it.
    """

    configs: tuple[str, ...] = PAPER_CONFIGS
    mixes: tuple[str, ...] = PLAIN_MIXES
    seeds: tuple[int, ...] = (0, 1, 2)
    microbatches: int = 16
    budget_ms: int = 1000
    cores: int = field(default_factory=lambda: max(1, int(usable_cores())))
    baselines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _names("configs", self.configs, SETUPS)
        _names("mixes", self.mixes, MIXES)
        if not self.seeds:
            raise ValueError("seeds is empty, must name at least one")
        for seed in self.seeds:
            _at_least("seeds", seed, 0)
        for name in ("microbatches", "budget_ms", "cores"):
            _at_least(name, getattr(self, name), 1)

    def json(self) -> dict[str, Any]:
        """Return the settings as they stand in a result."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _names(setting: str, given: Iterable[str], known: Iterable[str]) -> None:
    names = list(given)
    if not names:
        raise ValueError(f"{setting} is empty, must name at least one of {', '.join(known)}")
    for name in names:
        if name not in known:
            raise ValueError(f"{setting} names {name!r}, must be of {', '.join(known)}")


def _at_least(setting: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{setting} is {value}, must be at least {least}")
