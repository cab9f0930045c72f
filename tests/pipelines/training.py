"""Trains a tiny model on a pipeline with plans that are made beforehand: what ranks of the tests run."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch
from pipelines.models import TinyBatch, TinyChunk, TinyModel, Trace, loss_weight, make_optimizer
from pipelines.processes import RANK_LIMIT_S
from torch.autograd.graph import saved_tensors_hooks

from trainer_agent.executor import Executor
from trainer_agent.mesh import Mesh
from trainer_agent.plans import RankPlan, TakenPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dip.planner.v1 import planner_pb2 as pb

    from trainer_agent.stages import BuildChunk
    from trainer_agent.transfers import Transport

WAITED_US = 7
WITHOUT_PLAN = "no plan was prepared"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One iteration of one replica: its batch and the plan for it, if there is one.

    Ranks in ``other_plans`` and ``other_batches`` have another plan or batch than the rest.
    """

    batch: TinyBatch
    plan: pb.Plan | None
    other_plans: Mapping[int, pb.Plan | None] = field(default_factory=dict)
    other_batches: Mapping[int, TinyBatch] = field(default_factory=dict)

    def batch_of(self, rank: int) -> TinyBatch:
        return self.other_batches.get(rank, self.batch)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A training run.

    ``steps`` has the steps of each replica for each iteration; ranks in ``first_iterations`` count from there. The
    optimizer steps after every ``accumulate`` iterations.
    """

    name: str
    model: TinyModel
    spec: pb.JobSpec
    partition: pb.Partition
    steps: list[list[Step]]
    first_iterations: Mapping[int, int] = field(default_factory=dict)
    accumulate: int = 1

    @property
    def ranks(self) -> int:
        return self.spec.cluster.ranks

    @property
    def replicas(self) -> int:
        return self.spec.cluster.replicas or 1


@dataclass
class PreparedPlans:
    """A source of plans that were made before the processes started."""

    spec: pb.JobSpec
    partition: pb.Partition
    mesh: Mesh
    plans: Sequence[pb.Plan | None]
    attempt: int = 11
    first_iteration: int = 0
    reports: list[pb.ReportExecutionRequest] = field(default_factory=list)
    taken: int = 0

    def take(self, batch: object) -> TakenPlan:
        assert isinstance(batch, TinyBatch)
        iteration, whole = self.first_iteration + self.taken, self.plans[self.taken]
        self.taken += 1
        plan = None
        if whole is not None:
            plan = RankPlan.of(whole, batch.metadata(), rank=self.mesh.rank, iteration=iteration)
        reason = "" if plan else WITHOUT_PLAN
        return TakenPlan(iteration=iteration, batch=batch.metadata(), plan=plan, waited_us=WAITED_US, reason=reason)

    def report(self, report: pb.ReportExecutionRequest) -> None:
        self.reports.append(report)


@dataclass(kw_only=True)
class RankTrace(Trace):
    """What one rank saw."""

    fallbacks: list[bool] = field(default_factory=list)
    reports: list[pb.ReportExecutionRequest] = field(default_factory=list)
    measured_us: list[int] = field(default_factory=list)
    bubble_shares: list[float] = field(default_factory=list)


def copied() -> saved_tensors_hooks:
    """A way of a user's own to run a layer: copies of whatever its backward needs."""
    return saved_tensors_hooks(torch.clone, lambda copy: copy)


def make_executor(
    case: Case, mesh: Mesh, transport: Transport | None = None, build_chunk: BuildChunk | None = None
) -> tuple[Executor, PreparedPlans]:
    """Build an executor of this rank for a case."""
    steps = [of_replica[mesh.replica] for of_replica in case.steps]
    source = PreparedPlans(
        spec=case.spec,
        partition=case.partition,
        mesh=mesh,
        plans=[step.other_plans.get(mesh.rank, step.plan) for step in steps],
        first_iteration=case.first_iterations.get(mesh.rank, 0),
    )
    executor = Executor(
        source,
        build_chunk or partial(TinyChunk, case.model),
        hand_offs=case.model.hand_offs(),
        loss_weight=partial(loss_weight, case.model),
        strategies={"copied": copied},
        tied=case.model.tied,
        transport=transport,
    )
    return executor, source


def train(case: Case, mesh: Mesh) -> RankTrace:
    """Run a case on this rank; the optimizer steps where the last iteration trained."""
    executor, source = make_executor(case, mesh)
    trace, named = RankTrace(), dict(executor.named_parameters())
    optimizer = make_optimizer(named)
    for number, of_replica in enumerate(case.steps, start=1):
        step = of_replica[mesh.replica]
        result = executor.step(step.batch_of(mesh.rank))
        trace.note(result.loss, named)
        trace.fallbacks.append(result.fallback)
        trace.measured_us.append(result.measured_us)
        trace.bubble_shares.append(result.bubble_share)
        if number % case.accumulate:
            continue
        if not step.batch.forward_only:
            optimizer.step()
        optimizer.zero_grad()
    trace.finish(named)
    trace.reports = source.reports
    return trace


def train_all(cases: Sequence[Case]) -> list[RankTrace]:
    """Run several cases of as many ranks and replicas as there are processes."""
    mesh = Mesh.create(replicas=cases[0].replicas, timeout_s=RANK_LIMIT_S)
    return [train(case, mesh) for case in cases]
