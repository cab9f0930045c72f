"""The schedules that a rank keeps ready: checked as they arrive, matched with its own metadata, taken in time."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dip.digests import batch_digest, partition_digest, streamed_digest
from dip.validation import shown_reason
from dip.validation.limits import MAX_INT64

from trainer_agent.plans import RankPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dip.planner.v1 import planner_pb2 as pb

DEFAULT_CAPACITY = 16
# After so many iterations in a row without an answer, only every so many-th still waits, until one comes in time: a
# planner that is always too slow costs training next to nothing.
PATIENCE, PROBE_EVERY = 3, 16


@dataclass(frozen=True, slots=True)
class Unplanned:
    """Why an iteration has no plan on this rank.

    Parameters
    ----------
    reason
        In words.
    unanswered
        Whether the planner said nothing of this iteration in time.
    """

    reason: str
    unanswered: bool = False


@dataclass(frozen=True, slots=True)
class _Expected:
    batch: pb.Batch
    digest: bytes


@dataclass(frozen=True, slots=True)
class _Arrived:
    streamed: pb.StreamedSchedule
    digest: bytes


class ScheduleWindow:
    """Hands schedules from the thread that receives them to the thread that trains. Safe between the two.

    The training thread says which iterations it will want (`expect`), takes them in the order that it likes (`take`),
    or says that it will not (`abandon`); whatever else arrives for iterations that it has named is late and dropped.
    The receiving thread brings answers (`put`), and is held back while too many wait that nobody expects yet.

    Parameters
    ----------
    rank, ranks
        The pipeline rank whose schedules these are, and the number of ranks.
    partition
        What the rank has loaded; schedules for another one are refused.
    capacity
        How many answers may wait for iterations that are not expected yet.
    clock
        Seconds that only go forward; how long the planner has been away is told by it.
    """

    def __init__(
        self,
        *,
        rank: int,
        ranks: int,
        partition: pb.Partition,
        capacity: int = DEFAULT_CAPACITY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rank = rank
        self._ranks = ranks
        self._partition = partition
        self._partition_digest = partition_digest(partition)
        self._capacity = capacity
        self._clock = clock
        self._changed = threading.Condition()
        self._expected: dict[int, _Expected] = {}
        self._held: dict[int, _Arrived | Unplanned] = {}
        self._horizon = 0
        self._away = ""
        self._away_since = 0.0
        self._held_up = ""
        self._fruitless = 0
        self._closed = False
        self._late = 0

    @property
    def late(self) -> int:
        """Number of answers that came after their iteration had been run or abandoned."""
        return self._late

    def expect(self, iteration: int, batch: pb.Batch) -> None:
        """Note that an iteration will be taken, with this metadata."""
        expected = _Expected(batch, batch_digest(batch))
        with self._changed:
            self._expected[iteration] = expected
            self._horizon = max(self._horizon, iteration + 1)
            self._changed.notify_all()

    def abandon(self, iterations: Iterable[int]) -> None:
        """Note that iterations will not be taken after all."""
        with self._changed:
            for iteration in iterations:
                self._expected.pop(iteration, None)
                self._held.pop(iteration, None)
            self._changed.notify_all()

    def next_needed(self) -> int:
        """Return the first iteration that the stream still has to bring."""
        with self._changed:
            missing = [iteration for iteration in self._expected if iteration not in self._held]
            return min(missing, default=max([self._horizon, *(held + 1 for held in self._held)]))

    def put(self, answer: pb.StreamSchedulesResponse) -> bool:
        """Take in one answer of the stream.

        Returns
        -------
        bool
            False once the window is closed; until there is room, the call waits.
        """
        arrived = self._check(answer)
        with self._changed:
            self._away = ""
            if not self._wanted(answer.iteration):
                self._late += 1
            else:
                self._fruitless = 0
                self._changed.wait_for(lambda: self._closed or self._has_room(answer.iteration))
                self._held[answer.iteration] = arrived
            self._changed.notify_all()
            return not self._closed

    def refuse(self, iteration: int, reason: str) -> None:
        """Note that an iteration gets no plan, so that nobody waits for it."""
        with self._changed:
            if self._wanted(iteration):
                self._held[iteration] = Unplanned(reason)
            self._changed.notify_all()

    def planner_away(self, reason: str) -> None:
        """Note that no answer can come for now: what is not here yet is not waited for until one does."""
        with self._changed:
            if not self._away:
                self._away_since = self._clock()
            self._away = reason
            self._changed.notify_all()

    def held_up(self, reason: str) -> None:
        """Note why batches do not get to the planner for now; empty: they do. Answers are waited for all the same."""
        self._held_up = reason

    def be_patient(self) -> None:
        """Wait for answers as at first: another planner is asked."""
        with self._changed:
            self._fruitless = 0

    def take(self, iteration: int, wait_s: float) -> RankPlan | Unplanned:
        """Take one iteration's plan out, or the reason why there is none; late answers for it are dropped from now on.

        Parameters
        ----------
        iteration
            One that is expected.
        wait_s
            How long to wait for it. Not waited for where the planner is away, and seldom where it is always too slow.
        """
        with self._changed:
            fruitless = self._fruitless
            if fruitless >= PATIENCE and fruitless % PROBE_EVERY:
                wait_s = 0.0
            answered = self._changed.wait_for(lambda: iteration in self._held or self._away or self._closed, wait_s)
            if not answered:
                self._fruitless += 1
            expected = self._expected.pop(iteration)
            arrived = self._held.pop(iteration, None)
            self._changed.notify_all()
            missing = self._why_missing(wait_s, fruitless)
        if arrived is None:
            return Unplanned(missing, unanswered=True)
        if isinstance(arrived, Unplanned):
            return arrived
        return self._matched(iteration, expected, arrived)

    def close(self) -> None:
        """Let go whoever waits here."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _why_missing(self, wait_s: float, fruitless: int) -> str:
        """Say why there is no answer: in words that stay the same while their cause does, numbers apart."""
        if self._away:
            return f"no schedule for {self._clock() - self._away_since:.0f} s: {self._away}"
        waited = f"no schedule within {wait_s * 1000:.0f} ms"
        if not wait_s and fruitless:
            waited = f"no schedule yet, and not waited for, as none came in time for {fruitless} iterations"
        return f"{waited}; the batch is not handed over ({self._held_up})" if self._held_up else waited

    def _wanted(self, iteration: int) -> bool:
        # The largest number of all has none after it that a stream could be opened at.
        return iteration in self._expected or self._horizon <= iteration < MAX_INT64

    def _has_room(self, iteration: int) -> bool:
        early = sum(held not in self._expected for held in self._held)
        return iteration in self._expected or iteration in self._held or early < self._capacity

    def _check(self, answer: pb.StreamSchedulesResponse) -> _Arrived | Unplanned:
        if answer.WhichOneof("result") != "schedule":
            return Unplanned(f"not planned: {shown_reason(answer.unplanned_reason) or 'no reason given'}")
        streamed = answer.schedule
        if streamed.schedule.rank != self._rank or len(streamed.schedule_digests) != self._ranks:
            return Unplanned(
                f"refused: a schedule of rank {streamed.schedule.rank} of {len(streamed.schedule_digests)}, "
                f"not of rank {self._rank} of {self._ranks}"
            )
        if streamed.partition_digest != self._partition_digest:
            return Unplanned("refused: made for another partition than the one that is loaded")
        try:
            digest = streamed_digest(streamed)
        except ValueError as error:
            return Unplanned(f"refused: {error}")
        return _Arrived(streamed, digest)

    def _matched(self, iteration: int, expected: _Expected, arrived: _Arrived) -> RankPlan | Unplanned:
        streamed = arrived.streamed
        if streamed.batch_digest != expected.digest:
            return Unplanned("refused: made for another batch than this rank's")
        return RankPlan(
            iteration=iteration,
            batch=expected.batch,
            partition=self._partition,
            sub_microbatches=streamed.sub_microbatches,
            schedule=streamed.schedule,
            digest=arrived.digest,
            makespan_us=streamed.makespan_us,
            fallback=streamed.fallback,
        )
