"""A fault run: faults at random moments until each kind had its turns, and what came of it."""

from __future__ import annotations

import logging
import random
import re
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from benchmarks.faults import checks
from benchmarks.faults.site import RANKS, REPLICAS, Site
from benchmarks.faults.strikes import STRIKES
from benchmarks.faults.training import TrainingFailedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from benchmarks.faults.start import Start

BEGINNING_S: Final = 300.0
"""How long the first plans may take: the search's kernels may have to be compiled."""

_RECOVERY_S = 120.0
_LONGEST_GAP_S = 1.5
_ADDRESS = re.compile(r"(\w+:)*(//)?127\.0\.0\.1 ?:\d+(/0)?:? ?")
_REASON_CHARACTERS = 120

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Campaign:
    """What is asked for.

    Parameters
    ----------
    iterations
        Run at least, those that are run again included.
    rounds
        How often each kind strikes.
    seed
        Of what strikes when, and for how long.
    relentless
        Whether the next fault strikes before plans are back.
    batch_ms, budget_ms, haste, partitions
        See `Site`.
    """

    iterations: int
    rounds: int
    kinds: tuple[str, ...]
    seed: int
    batch_ms: int
    budget_ms: int
    relentless: bool = False
    haste: float = 1.0
    partitions: bool = True


SHORT: Final = Campaign(
    iterations=25,
    rounds=1,
    kinds=("planner_killed", "planner_stopped", "redis_killed", "redis_emptied", "network_cut", "agents_killed"),
    seed=0,
    batch_ms=300,
    budget_ms=40,
    haste=4.0,
    partitions=False,
)
"""Half a minute of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Struck:
    """One fault and what it cost.

    Parameters
    ----------
    began_s, ended_s
        On the monotonic clock.
    recovery_s
        From its end to the first of several iterations in a row that were planned in all replicas; 0 where that was
        not waited for.
    fallbacks
        Iterations that a replica ran with the fallback, from the beginning until then.
    """

    kind: str
    began_s: float
    ended_s: float
    recovery_s: float
    fallbacks: int


class Run:
    """A campaign on a site."""

    def __init__(self, campaign: Campaign, site: Site) -> None:
        self._campaign = campaign
        self._site = site
        self._draw = random.Random(campaign.seed)
        self.struck: list[Struck] = []
        self.violations: list[str] = []

    def go(self) -> None:
        """Train through all faults, and check everything."""
        campaign, training = self._campaign, self._site.training
        try:
            training.begin()
            _log.info("the ranks train")
            training.wait_for_plans(0.0, BEGINNING_S)
            _log.info("%d iterations of %d ms: there are plans", len(training.completed), training.batch_ms)
            kinds = list(campaign.kinds) * campaign.rounds
            self._draw.shuffle(kinds)
            for number, kind in enumerate(kinds):
                self._strike(kind, random.Random(f"{campaign.seed}/{number}"))
            training.wait_for_plans(time.monotonic(), _RECOVERY_S)
            training.wait_for_iterations(campaign.iterations)
            training.finish()
            self._site.look_for_lost_batches()
        except TrainingFailedError as error:
            self.violations.append(str(error))
        self._check_all()

    def _strike(self, kind: str, draw: random.Random) -> None:
        training = self._site.training
        self._site.last(draw, 0.0, _LONGEST_GAP_S)  # any moment of an iteration
        began_s = time.monotonic()
        STRIKES[kind](self._site, draw)
        ended_s = time.monotonic()
        steady_s = ended_s if self._campaign.relentless else training.wait_for_plans(ended_s, _RECOVERY_S)
        over = [done for done in training.completed if began_s <= done.at_s < steady_s]
        struck = Struck(
            kind=kind,
            began_s=began_s,
            ended_s=ended_s,
            recovery_s=round(max(0.0, steady_s - ended_s), 2),
            fallbacks=sum(done.fallbacks for done in over),
        )
        self.struck.append(struck)
        _log.info(
            "%d iterations of %d ms: %s for %.2f s, plans after %.2f s and %d fallbacks",
            *(len(training.completed), training.batch_ms, kind),
            *(ended_s - began_s, struck.recovery_s, struck.fallbacks),
        )

    def _check_all(self) -> None:
        _log.info("%d iterations: the ranks have ended", len(self._site.training.completed))
        self.violations += self._site.lost_batches
        starts = self._site.training.starts
        places = [(replica, rank) for replica in range(REPLICAS) for rank in range(RANKS)]
        for start in starts:
            found = checks.executions(
                start.executed, places=places, first_iteration=start.first_iteration, killed=start.killed
            )
            self.violations += [f"start {start.number}: {line}" for line in found]
        attempts = [start.attempt for start in starts if start.began]
        if attempts != sorted(set(attempts)):
            self.violations.append(f"attempts do not go up: {attempts}")
        self.violations += checks.losses(starts, replicas=REPLICAS)
        self.violations += checks.logs(self._site.logs())

    def result(self) -> dict[str, Any]:
        """Summarize it."""
        training = self._site.training
        executed = [one for start in training.starts for one in start.executed]
        return {
            "iterations": len(training.completed),
            "starts": len(training.starts),
            "executions": len(executed),
            "accepted_batches": len({(one.attempt, one.replica, one.iteration) for one in _accepted(training.starts)}),
            "fallbacks": sum(done.fallbacks for done in training.completed),
            "fallback_reasons": dict(Counter(_short(one.reason) for one in executed if one.fallback).most_common()),
            "batch_ms_at_the_end": training.batch_ms,
            "longest_wait_ms": max((one.waited_us for one in executed), default=0) // 1000,
            "faults": {kind: _by_kind(self.struck, kind) for kind in self._campaign.kinds},
            "violations": checks.counted(self.violations),
        }

    def executions(self) -> str:
        """List what ran when, a line for each iteration and replica."""
        lines: dict[tuple[int, int, int], list[str]] = {}
        for start in self._site.training.starts:
            for one in sorted(start.executed, key=lambda one: one.rank):
                line = f"{one.at_s:.2f} start {start.number}, replica {one.replica}, iteration {one.iteration}: "
                reasons = lines.setdefault((start.number, one.iteration, one.replica), [line])
                reasons.append(f"{one.waited_us // 1000} ms, {_short(one.reason) or 'planned'}")
        struck = [f"{one.began_s:.2f} {one.kind} until {one.ended_s:.2f}" for one in self.struck]
        return "\n".join(sorted([*("; ".join(words) for words in lines.values()), *struck]))


def _accepted(starts: Sequence[Start]) -> Iterable[Any]:
    return (one for start in starts for one in start.accepted)


def _short(reason: str) -> str:
    """Leave out what is different each time."""
    return _ADDRESS.sub("", reason)[:_REASON_CHARACTERS]


def _by_kind(struck: Sequence[Struck], kind: str) -> dict[str, Any]:
    those = [one for one in struck if one.kind == kind]
    return {
        "lasted_s": [round(one.ended_s - one.began_s, 2) for one in those],
        "fallbacks": [one.fallbacks for one in those],
        "recovery_s": [one.recovery_s for one in those],
    }


def run(campaign: Campaign, logs: Path | None = None) -> dict[str, Any]:
    """Run a campaign on a site of its own; returns its figures and its violations.

    Parameters
    ----------
    campaign
        What is asked for.
    logs
        A directory that gets the logs of all processes.
    """
    site = Site(
        batch_ms=campaign.batch_ms,
        budget_ms=campaign.budget_ms,
        haste=campaign.haste,
        partitions=campaign.partitions,
    )
    with site:
        made = Run(campaign, site)
        made.go()
        if logs is not None:
            logs.mkdir(parents=True, exist_ok=True)
            for name, text in (site.logs() | {"executions": made.executions()}).items():
                (logs / f"{name}.log").write_text(text, encoding="utf-8")
        return made.result()
