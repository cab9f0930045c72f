"""Outcomes that this planner came to of late, so that a store that lost them gets the same ones again."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from planner_service.store import BatchKey, Claim, Outcome

MOST_BYTES: Final = 16 * 2**20
"""What all of them may take; the newest stays whatever it takes."""


class Remembered:
    """Outcomes by batch. A second plan of one batch would be as good, and differ from what ranks have already."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._outcomes: OrderedDict[tuple[BatchKey, bytes], Outcome] = OrderedDict()
        self._bytes = 0

    def outcome(self, claim: Claim) -> Outcome | None:
        """Return what a batch came to before, if it is remembered."""
        return self._outcomes.get((claim.key, claim.digest))

    def keep(self, claim: Claim, outcome: Outcome) -> None:
        """Remember what a batch came to."""
        key = (claim.key, claim.digest)
        if key in self._outcomes:
            return
        self._outcomes[key] = outcome
        self._bytes += outcome.num_bytes
        while self._bytes > self._most_bytes and len(self._outcomes) > 1:
            _, dropped = self._outcomes.popitem(last=False)
            self._bytes -= dropped.num_bytes
