"""What is told of single jobs: of no more than there may be, and of none that is over."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from planner_service.metrics import catalogue

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_JOBS: Final = 1024
"""Jobs end at other planners, too, and nobody tells."""

_KINDS: Final = ("plans", "reports")
_RAN: Final = ("plan", "fallback")


class JobMetrics:
    """The jobs that have values of their own. For use from one event loop.

    Parameters
    ----------
    most
        How many at once; the one heard of longest ago gives way.
    """

    def __init__(self, *, most: int = MOST_JOBS) -> None:
        self._most = most
        self._known: OrderedDict[str, None] = OrderedDict()  # the one heard of last comes last

    @property
    def known(self) -> Sequence[str]:
        """Their ids."""
        return list(self._known)

    def reported(self, job_id: str, *, fallback: bool, stalled_us: int) -> None:
        """Note that a rank reported an iteration."""
        self.heard_of(job_id)
        catalogue.REPORTS.labels(job_id, _RAN[fallback]).inc()
        catalogue.STALLED_SECONDS.labels(job_id).inc(stalled_us / 1e6)

    def heard_of(self, job_id: str) -> None:
        """Note that trainers of a job talk to this planner."""
        if job_id not in self._known:
            self._known[job_id] = None
            # Zeros first: a rate is blind to what a series begins with.
            for ran in _RAN:
                catalogue.REPORTS.labels(job_id, ran)
            catalogue.STALLED_SECONDS.labels(job_id)
            if len(self._known) > self._most:
                self.forget(next(iter(self._known)))
        self._known.move_to_end(job_id)

    def stands(self, job_id: str, *, lead: int | None, plan_bytes: int, report_bytes: int) -> None:
        """Set what the store tells of a job that is known.

        Parameters
        ----------
        lead
            Iterations that have an outcome beyond the last one reported; None: nothing was reported yet.
        """
        if job_id not in self._known:
            return
        if lead is not None:
            catalogue.JOB_LEAD.labels(job_id).set(lead)
        for kind, num_bytes in zip(_KINDS, (plan_bytes, report_bytes), strict=True):
            catalogue.JOB_KEPT_BYTES.labels(job_id, kind).set(num_bytes)

    def forget(self, job_id: str) -> None:
        """Drop all values of a job that is over."""
        self._known.pop(job_id, None)
        for ran in _RAN:
            catalogue.REPORTS.remove(job_id, ran)
        for kind in _KINDS:
            catalogue.JOB_KEPT_BYTES.remove(job_id, kind)
        catalogue.STALLED_SECONDS.remove(job_id)
        catalogue.JOB_LEAD.remove(job_id)


JOBS: Final = JobMetrics()
