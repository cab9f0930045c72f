"""A baseline: a name, and how its plans are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_batch, validate_plan_request

from planner_service.baselines.drafts import Candidate, draw, shortest

Candidates = Callable[[pb.JobSpec, pb.Batch], Iterable[Candidate]]
"""What a baseline may do for a job and a batch like those to come; the shortest is what it does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """A way of planning that users have today.

    Parameters
    ----------
    name
        Short, in lower case and hyphens.
    description
        What it does, in a line.
    candidates
        What it chooses from.
    splits_backward
        Whether its order needs backwards in two halves.
    """

    name: str
    description: str
    candidates: Candidates
    splits_backward: bool = False

    def asked(self, request: pb.PlanRequest) -> pb.PlanRequest:
        """Return the request that its plans answer: what `dip check` and the simulator are to be given.

        The same job and batch, but it chooses its own partition, segments and sub-microbatches; and where its order
        needs split backwards the job allows them.
        """
        made = pb.PlanRequest(job=request.job, batch=request.batch)
        made.job.options.segments.clear()
        made.job.options.sub_microbatch_units.clear()
        if self.splits_backward:
            made.job.options.split_backward = True
        return made

    def plan(self, request: pb.PlanRequest, representative: pb.Batch | None = None) -> pb.Plan:
        """Plan a batch.

        Parameters
        ----------
        request
            Job and batch; a partition in it is not kept.
        representative
            What the partition is chosen for: what a static plan knows. By default the batch itself, which is more than
            any static plan knows.

        Raises
        ------
        InvalidRequestError
            If the request breaks the contract.
        CannotFitError
            If no candidate fits the memory even with all layers recomputed.
        """
        validate_plan_request(request)
        asked = self.asked(request)
        known = asked.batch if representative is None else representative
        validate_batch(asked.job, known)
        chosen = shortest(asked.job, known, self.candidates(asked.job, known))
        if representative is not None:
            chosen = draw(asked.job, asked.batch, chosen.candidate)
        return chosen.plan(asked.batch)

    def __call__(self, request: pb.PlanRequest) -> pb.Plan:
        """Plan a batch that is known when the partition is chosen."""
        return self.plan(request)
