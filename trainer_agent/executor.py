"""Runs one rank's part of every iteration: agreement, actions, gradients over the replicas, measurements."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from dip.digests import batch_digest, partition_digest
from dip.fallback import fallback_plan
from dip.job import Job
from dip.lowering import Phase
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import shown_reason
from torch import nn

from trainer_agent import about
from trainer_agent.agreement import Ballot, compare, vote
from trainer_agent.backward import StageRunner
from trainer_agent.compiling import STRATEGIES, Compiler
from trainer_agent.errors import ExecutorFailedError, PlanError, TrainerAgentError
from trainer_agent.mailbox import Mailbox
from trainer_agent.measuring import Outcome, StepResult, fill_report, make_timeline
from trainer_agent.plans import RankPlan
from trainer_agent.program import ComputeStep
from trainer_agent.reduction import EarlierGradients, LossWeight, reduce_gradients
from trainer_agent.rows import take_rows
from trainer_agent.setup import check_setup, chunks_of_rank
from trainer_agent.stages import build_and_check
from trainer_agent.together import together
from trainer_agent.transfers import GroupTransport
from trainer_agent.tying import TiedParameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trainer_agent.measuring import Timeline
    from trainer_agent.plans import PlanSource, TakenPlan
    from trainer_agent.program import CellPlan, Program, Step
    from trainer_agent.stages import BuildChunk, LossWeightOf, ModuleHandOffs, Strategy
    from trainer_agent.transfers import Transport

_log = about.logger(__name__)

_SENT = "the planner sent the fixed schedule: its search failed, was refused, or is being compiled"


class Executor:
    """Builds this rank's chunks and runs training iterations with them. Made on all processes, collectively.

    Gradients are added to ``parameter.grad``, as ``loss.backward()`` would: call ``optimizer.zero_grad()`` between
    steps, or after several whose gradients are to add up. Whether modules are in training or evaluation mode (dropout)
    is left to ``executor.chunks.train()`` and ``.eval()``; a step never changes it. Results that their consumers ignore
    get gradients of zeros, not none.

    Where the job allows split backwards, an input half computes what the chunks before wait for, the weight half the
    rest, and every tensor that the weight half does not need goes after the input half. Parameters of one dimension,
    and all of a compiled layer or a custom ``autograd.Function``, get their gradients in the input half. Layers may
    checkpoint by themselves with ``use_reentrant=False``: each half then recomputes, which the strategy "recompute"
    avoids. Hooks of parameters run as in ``loss.backward()``; those of a tensor between two uses of one parameter run
    in both halves, the second time for the parameter's sake: what they return counts once, what they note does not.

    One parameter that several chunks share (an embedding that is the head as well) must be named in ``tied``: then its
    copies start alike and get the sum of their gradients. To an optimizer they are several parameters: a norm of all
    gradients counts each copy.

    Parameters
    ----------
    source
        Where plans come from: the agent.
    build_chunk
        Builds the user's module for a chunk; called for this rank's chunks, in the order of modules and layers.
    hand_offs
        What crosses boundaries, for each module by name.
    loss_weight
        What a batch's summed loss is divided by, added up over the replicas; called with the user's batch.
    strategies
        Ways of the user's own to run a layer, by the name that the job's costs have for them: each call makes the
        context that one layer's forward runs in, ``torch.autograd.graph.saved_tensors_hooks`` say. "store",
        "recompute" and "offload" are there already.
    tied
        For each tensor that has copies the names of these, as `named_parameters` has them:
        ``[("language.embed.weight", "language.head.weight")]``. The first gives the others their values.
    transport
        Sends and receives; over the mesh's pipeline group where not given.

    Attributes
    ----------
    chunks
        The user's modules of this rank, by ``"<module>:<chunk index>"``.

    Raises
    ------
    StageInterfaceError
        The modules or hand-offs do not keep the interface.
    TrainerAgentError
        The job asks for what this executor does not do, or another process could not build its chunks.
    RankMismatchError
        Processes differ in specification, partition, attempt or hand-offs.
    """

    def __init__(
        self,
        source: PlanSource,
        build_chunk: BuildChunk,
        *,
        hand_offs: Mapping[str, ModuleHandOffs],
        loss_weight: LossWeightOf,
        strategies: Mapping[str, Strategy] | None = None,
        tied: Sequence[Sequence[str]] = (),
        transport: Transport | None = None,
    ) -> None:
        self._source, self._mesh, self._loss_weight = source, source.mesh, loss_weight
        job = Job.from_spec(source.spec)
        own = dict(strategies or {})
        check_setup(source.spec, job, source.mesh, hand_offs, own)
        compare(
            self._mesh.world,
            self._mesh,
            what="the job as set up (spec, partition, attempt, hand-offs, tied parameters)",
            digest=_setup_digest(source, hand_offs, tied),
        )
        self._compiler = Compiler(
            job=job,
            partition=source.partition,
            rank=self._mesh.rank,
            hand_offs=hand_offs,
            strategies=(*STRATEGIES, *own),
        )
        self._runners: dict[tuple[str, int], StageRunner] = {}
        self.chunks = nn.ModuleDict()
        together(lambda: self._build(job, build_chunk, hand_offs, own), self._mesh, what="building the chunks")
        self._tied = TiedParameters(tied, dict(self._named(remove_duplicate=False)), self._mesh)
        self._transport = GroupTransport(self._mesh) if transport is None else transport
        self._transport.warm_up()
        self._pending: Outcome | None = None
        self._steps = 0
        self._failed = False

    def _build(
        self,
        job: Job,
        build_chunk: BuildChunk,
        hand_offs: Mapping[str, ModuleHandOffs],
        strategies: Mapping[str, Strategy],
    ) -> None:
        """Build this rank's chunks."""
        for chunk in chunks_of_rank(job, self._source.partition, self._mesh.rank):
            spec = job.modules[job.module_index[chunk.module]]
            module = build_and_check(build_chunk, chunk).to(self._mesh.device)
            self._runners[chunk.module, chunk.index] = StageRunner(
                chunk=chunk,
                module=module,
                hand_offs=hand_offs[chunk.module],
                input_modules=[job.modules[index].name for index in spec.inputs],
                frozen=spec.frozen,
                device=self._mesh.device,
                strategies=strategies,
            )
            self.chunks[f"{chunk.module}:{chunk.index}"] = module

    def parameters(self) -> Iterator[nn.Parameter]:
        """Iterate over this rank's parameters: what an optimizer gets."""
        return self.chunks.parameters()

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Iterate over this rank's parameters under names that do not depend on the partition.

        A layer's parameters are ``<module>.layers.<layer>.<name>`` with the layer counted through the whole module,
        all others ``<module>.<name>``.
        """
        return self._named(remove_duplicate=True)

    def _named(self, *, remove_duplicate: bool) -> Iterator[tuple[str, nn.Parameter]]:
        for runner in self._runners.values():
            chunk = runner.chunk
            for name, parameter in runner.module.named_parameters(remove_duplicate=remove_duplicate):
                owner, _, rest = name.partition(".")
                if owner == "layers":
                    index, _, rest = rest.partition(".")
                    name = f"layers.{chunk.first_layer + int(index)}.{rest}"
                yield f"{chunk.module}.{name}", parameter

    def step(self, batch: object) -> StepResult:
        """Run one iteration: forward, backward, gradients added up over the replicas.

        Parameters
        ----------
        batch
            The user's batch, as the agent's loader gave it.

        Raises
        ------
        RankMismatchError
            The ranks do not have the same batch.
        CannotFitError
            There is no plan, and the batch cannot fit this partition's memory at all.
        StepTimeoutError, PeerLostError, TransferMismatchError
            Another rank did not do its part.
        ExecutorFailedError
            A step failed before.
        TrainerAgentError
            It is called under ``torch.inference_mode``.

        What a user's module raises passes through, with a note that says on which rank and in which action.
        """
        if self._failed:
            raise ExecutorFailedError(f"rank {self._mesh.rank}: an earlier step failed; start the job again")
        if torch.is_inference_mode_enabled():
            raise TrainerAgentError(
                "step() under torch.inference_mode(): nothing made there can have gradients; call it outside, and "
                "describe batches to evaluate on with forward_only, which keeps no activations either"
            )
        taken = self._source.take(batch)
        self._failed = True
        if self._pending is not None:
            self._pending.wait()
        decided = self._decide(taken)
        weight = LossWeight.gather(
            self._mesh, weight=self._loss_weight(batch), iteration=taken.iteration, training=decided.program.training
        )
        result = self._run(batch, taken, decided, weight)
        self._pending = result.outcome
        self._steps += 1
        self._failed = False
        return result

    def _decide(self, taken: TakenPlan) -> _Decided:
        """Agree with the other ranks, and compile what all of them run."""
        plan, program, reason = taken.plan, None, taken.reason
        if plan is not None and (plan.iteration != taken.iteration or plan.batch != taken.batch):
            plan, reason = None, "refused: the plan is for another batch"
        if plan is not None:
            try:
                program = self._compiler.compile(plan)
            except PlanError as error:
                plan, reason = None, f"refused: {error}"
        if reason and taken.plan is not None:
            _log.warning(
                "iteration %d: %s", taken.iteration, shown_reason(reason), extra=about.iteration(taken.iteration)
            )
        ballot = Ballot(
            attempt=self._source.attempt,
            iteration=taken.iteration,
            batch_digest=batch_digest(taken.batch),
            plan_digest=None if plan is None else plan.digest,
        )
        differs = vote(self._mesh, ballot)
        if not differs and plan is not None and program is not None:
            return _Decided(plan, program, _SENT if plan.fallback else "")
        whole = fallback_plan(self._source.spec, self._source.partition, taken.batch)
        plan = RankPlan.of(whole, taken.batch, rank=self._mesh.rank, iteration=taken.iteration)
        return _Decided(plan, self._compiler.compile(plan), reason or differs)

    def _run(self, batch: object, taken: TakenPlan, decided: _Decided, weight: LossWeight) -> StepResult:
        """Run the actions, then what all ranks do together."""
        plan, program = decided.plan, decided.program
        run = _Run(self._mesh.rank, self._runners, Mailbox(self._transport, self._steps), batch, program, weight)
        timeline = make_timeline(self._mesh.device)
        if program.training:
            earlier = EarlierGradients(self.parameters(), self._tied.parameters(), self._mesh)
            run.run(timeline)
            reduce_gradients(self.parameters(), self._mesh)
            self._tied.add_up()
            earlier.put_back()
        else:
            run.run(timeline)
        spans = timeline.spans()
        outcome = Outcome.gather(self._mesh, loss_sum=run.loss_sum(), loss_scale=weight.scale(), spans=spans)
        report = pb.ReportExecutionRequest(
            attempt=self._source.attempt,
            replica=self._mesh.replica,
            rank=self._mesh.rank,
            iteration=taken.iteration,
            plan_digest=plan.digest,
            peak_memory_bytes=timeline.peak_bytes(),
            stalled_us=taken.waited_us,
            fallback=plan.fallback,
            fallback_reason=shown_reason(decided.reason),
        )
        fill_report(report, [step.action for step in program.steps if isinstance(step, ComputeStep)], spans)
        self._source.report(report)
        return StepResult.of(taken, plan, report, outcome)


@dataclass(frozen=True, slots=True)
class _Decided:
    """What all ranks run, and why it is the fallback where it is."""

    plan: RankPlan
    program: Program
    reason: str


class _Run:
    """One iteration in progress on one rank."""

    def __init__(
        self,
        rank: int,
        runners: Mapping[tuple[str, int], StageRunner],
        mailbox: Mailbox,
        batch: object,
        program: Program,
        weight: LossWeight,
    ) -> None:
        self._rank = rank
        self._runners = runners
        self._mailbox = mailbox
        self._batch = batch
        self._program = program
        self._weight = weight
        self._losses: dict[int, torch.Tensor] = {}

    def run(self, timeline: Timeline) -> None:
        """Issue every action in order; compute waits for what it consumes, everything is sent at the end."""
        step: Step | None = None
        try:
            for step in self._program.steps:
                if not isinstance(step, ComputeStep):
                    self._mailbox.transfer(step)
                elif step.phase == Phase.FORWARD:
                    self._forward(step.work, timeline)
                elif step.phase == Phase.BACKWARD_WEIGHT:
                    self._backward_weight(step.work, timeline)
                else:
                    self._backward(step.work, step.phase, timeline)
        except BaseException as error:  # a user's module may raise anything; one handler costs no action anything
            error.add_note(f"raised on rank {self._rank}, in the {step}")
            raise
        self._mailbox.drain()

    def loss_sum(self) -> float:
        """Sum of this rank's losses, in the order of sub-microbatches whatever order they ran in."""
        return sum(float(self._losses[sub]) for sub in sorted(self._losses))

    def _forward(self, work: CellPlan, timeline: Timeline) -> None:
        runner = self._runners[work.cell.module, work.cell.chunk]
        arrived = [self._mailbox.take(edge.activation) for edge in work.inputs]
        timeline.begin()
        output = runner.forward(work, arrived, self._batch, training=self._program.training)
        if runner.chunk.is_loss:
            self._losses[work.cell.sub_microbatch] = output
        for edge in work.outputs:
            self._mailbox.put(edge.activation, take_rows(output, edge, work.result_rows))
        timeline.end()

    def _backward(self, work: CellPlan, phase: Phase, timeline: Timeline) -> None:
        """Run a whole backward or an input half."""
        runner = self._runners[work.cell.module, work.cell.chunk]
        arrived = [self._mailbox.take(edge.gradient) for edge in work.outputs]
        scale = self._weight.scale() if runner.chunk.is_loss else 1.0
        backward = runner.backward if phase == Phase.BACKWARD else runner.backward_input
        timeline.begin()
        gradients = backward(work, arrived, loss_scale=scale)
        timeline.end()
        for edge, gradient in zip(work.inputs, gradients, strict=True):
            if gradient is not None:
                self._mailbox.put(edge.gradient, gradient)

    def _backward_weight(self, work: CellPlan, timeline: Timeline) -> None:
        timeline.begin()
        self._runners[work.cell.module, work.cell.chunk].backward_weight(work)
        timeline.end()


def _setup_digest(source: PlanSource, hand_offs: Mapping[str, ModuleHandOffs], tied: Sequence[Sequence[str]]) -> bytes:
    """Digest of everything that all processes must have alike."""
    digest = hashlib.sha256(source.spec.SerializeToString(deterministic=True))
    digest.update(partition_digest(source.partition))
    digest.update(str(source.attempt).encode())
    for name in sorted(hand_offs):
        for hand_off in (hand_offs[name].output, hand_offs[name].handed_on):
            digest.update(f"{name}{hand_off.features}{hand_off.dtype}".encode())
    digest.update(str([list(names) for names in tied]).encode())
    return digest.digest()
