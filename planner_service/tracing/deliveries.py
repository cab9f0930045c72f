"""One span for all that a planner sends of one plan, with an event for each rank: not a span for each of a thousand."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from planner_service.tracing.sent import named

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.trace import Span

    from planner_service.tracing.tracer import Replica

LONGEST_S: Final = 30.0
"""How long ranks that have not been sent theirs are waited for; they may be served by another planner."""


@dataclass(slots=True)
class _Delivery:
    span: Span
    begun_s: float
    last_ns: int = 0
    ranks: set[int] = field(default_factory=set)

    def end(self) -> None:
        """End the span with what was sent last."""
        self.span.end(self.last_ns)


class Deliveries:
    """Plans that are being sent.

    Parameters
    ----------
    begin
        Begins the span of one.
    clock
        Seconds that only go forward.
    """

    def __init__(self, begin: Callable[[Replica, int], Span], clock: Callable[[], float] = time.monotonic) -> None:
        self._begin = begin
        self._clock = clock
        self._open: OrderedDict[tuple[str, int, int, int], _Delivery] = OrderedDict()  # the longest open comes first

    def sent(self, replica: Replica, iteration: int, *, rank: int, ranks: int) -> None:
        """One of so many ranks has been sent its part."""
        now_s = self._clock()
        while self._open and now_s - next(iter(self._open.values())).begun_s > LONGEST_S:
            self._open.popitem(last=False)[1].end()
        key = (replica.job_id, replica.attempt, replica.replica, iteration)
        delivery = self._open.get(key)
        if delivery is None:
            delivery = self._open[key] = _Delivery(self._begin(replica, iteration), now_s)
        delivery.last_ns = time.time_ns()
        delivery.span.add_event("sent", named({"rank": rank}), delivery.last_ns)
        delivery.ranks.add(rank)
        if len(delivery.ranks) >= ranks:
            del self._open[key]
            delivery.end()

    def end(self) -> None:
        """End all spans."""
        while self._open:
            self._open.popitem()[1].end()
