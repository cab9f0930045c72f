"""The iterations of one replica in the default store."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from planner_service.store.records import LATE, Answer, Entry, Outcome, RecentIteration, TooOldError

if TYPE_CHECKING:
    from collections.abc import Sequence

NEWEST_KEPT: Final = 2
"""Iterations with an outcome that stay whatever they take: the one that is run, and the next."""


class MemoryReplica:
    """Batches, outcomes and reports by iteration."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._reports: dict[int, dict[int, bytes]] = {}
        self._reported: dict[int, bytes] = {}  # their summaries
        self._unsettled: set[int] = set()
        self._settled_bytes = 0
        self._reports_bytes = 0
        self._oldest = 0
        self._last_reported = -1

    @property
    def num_unsettled(self) -> int:
        """Batches without an outcome."""
        return len(self._unsettled)

    @property
    def lead(self) -> int | None:
        """Iterations that have an outcome beyond the last one reported; None where none was."""
        if self._last_reported < 0:
            return None
        return max(self._entries.keys() - self._unsettled, default=self._last_reported) - self._last_reported

    @property
    def settled_bytes(self) -> int:
        """What outcomes take."""
        return self._settled_bytes

    @property
    def reports_bytes(self) -> int:
        """What reports take."""
        return self._reports_bytes

    @property
    def kept_bytes(self) -> int:
        """What outcomes and reports take."""
        return self._settled_bytes + self._reports_bytes

    def check_kept(self, iteration: int) -> None:
        """Raise TooOldError for an iteration below the oldest that is kept."""
        if iteration < self._oldest:
            raise TooOldError(iteration, self._oldest)

    def entry(self, iteration: int) -> Entry | None:
        """Return one batch."""
        return self._entries.get(iteration)

    def add(self, iteration: int, digest: bytes) -> None:
        """Add a batch without an outcome."""
        self._entries[iteration] = Entry(iteration=iteration, digest=digest)
        self._unsettled.add(iteration)

    def settle_if_late(self, iteration: int) -> bool:
        """Settle a batch whose iteration, or a later one, was reported; return whether it was."""
        if iteration > self._last_reported:
            return False
        self.settle(iteration, Outcome(unplanned_reason=LATE))
        return True

    def settle(self, iteration: int, outcome: Outcome) -> None:
        """Write the outcome of a batch that has none."""
        self._entries[iteration] = replace(self._entries[iteration], outcome=outcome)
        self._unsettled.discard(iteration)
        self._settled_bytes += outcome.num_bytes

    def unsettled_until(self, iteration: int) -> list[int]:
        """Return the iterations up to this one that have no outcome, ascending."""
        return sorted(unsettled for unsettled in self._unsettled if unsettled <= iteration)

    def next_answer(self, rank: int, first_iteration: int) -> Answer | None:
        """Return what a rank is told of the lowest iteration from `first_iteration` on, if that has an outcome."""
        nearest = heapq.nsmallest(2, (iteration for iteration in self._entries if iteration >= first_iteration))
        outcomes = [self._entries[iteration].outcome for iteration in nearest]
        if not outcomes or outcomes[0] is None:
            return None
        return Answer(
            iteration=nearest[0],
            response=b"" if outcomes[0].unplanned_reason else outcomes[0].responses[rank],
            unplanned_reason=outcomes[0].unplanned_reason,
            more=len(outcomes) > 1 and outcomes[1] is not None,
        )

    def add_report(self, iteration: int, rank: int, report: bytes, summary: bytes) -> bool:
        """Add a rank's report unless there is one; return whether there was none."""
        reports = self._reports.setdefault(iteration, {})
        if rank in reports:
            return False
        reports[rank] = report
        self._reported[iteration] = self._reported.get(iteration, b"") + summary
        self._reports_bytes += len(report) + len(summary)
        self._last_reported = max(self._last_reported, iteration)
        return True

    def drop_oldest_reports(self, kept: int, kept_bytes: int) -> None:
        """Forget reports of the lowest iterations.

        Parameters
        ----------
        kept, kept_bytes
            Of how many iterations reports are kept, and what they may take; those of the newest stay all the same.
        """
        while len(self._reports) > kept or (len(self._reports) > 1 and self._reports_bytes > kept_bytes):
            self._drop_reports(min(self._reports))

    def reports(self, iteration: int) -> Sequence[bytes]:
        """Return the reports of an iteration, by rank."""
        reports = self._reports.get(iteration, {})
        return [reports[rank] for rank in sorted(reports)]

    def recent(self, number: int, count: int, last: int | None) -> list[RecentIteration]:
        """Return in few bytes what is kept of the newest iterations, ascending.

        Parameters
        ----------
        number
            Of this replica.
        count
            How many.
        last
            The newest one; None: the newest known.
        """
        known = (n for n in self._entries.keys() | self._reports.keys() if last is None or n <= last)
        return [self._recent(number, iteration) for iteration in reversed(heapq.nlargest(count, known))]

    def _recent(self, number: int, iteration: int) -> RecentIteration:
        entry = self._entries.get(iteration)
        outcome = entry.outcome if entry is not None else None
        return RecentIteration(
            replica=number,
            iteration=iteration,
            submitted=entry is not None,
            settled=outcome is not None,
            unplanned_reason="" if outcome is None else outcome.unplanned_reason,
            summary=b"" if outcome is None else outcome.summary,
            reported=self._reported.get(iteration, b""),
        )

    def drop_unsettled(self) -> None:
        """Forget batches without an outcome."""
        for iteration in self._unsettled:
            del self._entries[iteration]
        self._unsettled.clear()

    def drop_oldest(self, kept: int, kept_bytes: int) -> list[int]:
        """Forget all below what may be kept; return the iterations without an outcome among them.

        Parameters
        ----------
        kept
            Iterations with an outcome that may be kept.
        kept_bytes
            What their outcomes may take; `NEWEST_KEPT` of them stay all the same.
        """
        settled = sorted(self._entries.keys() - self._unsettled)
        while len(settled) > kept or (len(settled) > NEWEST_KEPT and self._settled_bytes > kept_bytes):
            self._drop_settled(settled.pop(0))
            self._oldest = settled[0]
        return self._drop_below_oldest()

    def drop_run(self) -> list[int]:
        """Forget all before the last iteration reported; return the iterations without an outcome among them."""
        for iteration in self._entries.keys() - self._unsettled:
            if iteration < self._last_reported:
                self._drop_settled(iteration)
        self._oldest = max(self._oldest, self._last_reported)
        return self._drop_below_oldest()

    def _drop_settled(self, iteration: int) -> None:
        outcome = self._entries.pop(iteration).outcome
        self._settled_bytes -= outcome.num_bytes if outcome is not None else 0

    def _drop_below_oldest(self) -> list[int]:
        unsettled = [iteration for iteration in self._unsettled if iteration < self._oldest]
        for iteration in unsettled:
            del self._entries[iteration]
            self._unsettled.discard(iteration)
        for iteration in [iteration for iteration in self._reports if iteration < self._oldest]:
            self._drop_reports(iteration)
        return unsettled

    def _drop_reports(self, iteration: int) -> None:
        self._reports_bytes -= sum(map(len, self._reports.pop(iteration).values())) + len(self._reported.pop(iteration))
