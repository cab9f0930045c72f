"""One piece of a suite: what is measured together, and again as a whole if a run was cut short in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner_service.check.workload import workload_request

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb

Row = dict[str, "str | int | float | bool | None"]
"""What was measured, flat: the columns of a suite's table."""

GIVEN, CLEARED, HALVED = "given", "cleared", "halved"
"""Memory limits of a request, against what its set-up says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What a suite measures in one go.

    Parameters
    ----------
    config, mix, seed, microbatches
        Of the batch.
    variant
        What else tells it from others of its suite.
    seconds
        What it is expected to take.
    """

    config: str
    mix: str
    seed: int
    microbatches: int
    variant: str = ""
    seconds: float = 1.0

    @property
    def name(self) -> str:
        """Name that no other case of the suite has."""
        words = (self.config, self.mix, f"seed {self.seed}", f"{self.microbatches} microbatches", self.variant)
        return ", ".join(word for word in words if word)

    def request(self, *, split: bool = True, memory: str = GIVEN) -> pb.PlanRequest:
        """Make the request.

        Parameters
        ----------
        split
            Whether backwards may be split.
        memory
            GIVEN, CLEARED (no limits) or HALVED.
        """
        request = workload_request(self.config, self.microbatches, self.seed, self.mix)
        request.job.options.split_backward = split
        limits = request.job.cluster.memory_bytes
        if memory != GIVEN:
            limits[:] = [] if memory == CLEARED else [limit // 2 for limit in limits]
        return request

    def row(self, **values: str | int | float | bool | None) -> Row:
        """Return a row of this case."""
        return {
            "config": self.config,
            "mix": self.mix,
            "seed": self.seed,
            "microbatches": self.microbatches,
            **values,
        }
