"""From a rank's plan to its program: every action resolved, everything that the contract promises checked on this rank.

What a rank cannot see is the other ranks' schedules; that they fit this one is what the digest vouches for.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from dip.lowering import Phase
from dip.planner.v1 import planner_pb2 as pb
from dip.work import Part, Work, chunks_of

from trainer_agent.errors import PlanError
from trainer_agent.ordering import check_steps
from trainer_agent.program import Cell, CellPlan, ComputeStep, Edge, Parcel, Program, TransferStep
from trainer_agent.stages import Instance

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dip.job import Job
    from dip.work import Edge as WorkEdge

    from trainer_agent.plans import RankPlan
    from trainer_agent.program import Step
    from trainer_agent.stages import ModuleHandOffs

STORE, RECOMPUTE, OFFLOAD = "store", "recompute", "offload"
STRATEGIES = (STORE, RECOMPUTE, OFFLOAD)

_COMPUTE = {int(phase): phase for phase in Phase}
_HALVES = Phase.BACKWARD_INPUT, Phase.BACKWARD_WEIGHT
_TRANSFERS = {
    pb.ACTION_KIND_SEND_ACTIVATION: (True, False),
    pb.ACTION_KIND_RECV_ACTIVATION: (False, False),
    pb.ACTION_KIND_SEND_GRADIENT: (True, True),
    pb.ACTION_KIND_RECV_GRADIENT: (False, True),
}


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """Turns this rank's plans into programs.

    Parameters
    ----------
    job
        The job.
    partition
        The loaded partition.
    rank
        This rank.
    hand_offs
        What crosses boundaries, by module name.
    strategies
        Names of the ways in which layers can run.
    """

    job: Job
    partition: pb.Partition
    rank: int
    hand_offs: Mapping[str, ModuleHandOffs]
    strategies: Sequence[str] = STRATEGIES

    def compile(self, plan: RankPlan) -> Program:
        """Check a plan and resolve its actions.

        Raises
        ------
        PlanError
            The plan is not one that this rank can run; the first fault found is named.
        """
        if sorted(map(_chunk_key, plan.partition.chunks)) != sorted(map(_chunk_key, self.partition.chunks)):
            raise self._error("the plan is for another partition than the loaded one")
        if plan.schedule.rank != self.rank:
            raise self._error(f"the schedule is of rank {plan.schedule.rank}")
        graph = _Graph(
            compiler=self,
            work=Work(
                job=self.job,
                forward_only=plan.batch.forward_only,
                chunks=chunks_of(self.job, self.partition),
                parts=self._parts(plan),
            ),
            ids=[sub.id for sub in plan.sub_microbatches],
        )
        edges = graph.edges()
        cells = self._cells(graph, edges, plan.schedule)
        parcels = _parcels(edges)
        steps = [self._step(position, action, cells, parcels) for position, action in enumerate(plan.schedule.actions)]
        check_steps(self.rank, steps, cells.values(), edges)
        loss = self.job.modules[-1].name, len(graph.work.chunks[-1]) - 1
        return Program(
            iteration=plan.iteration,
            training=not plan.batch.forward_only,
            steps=steps,
            losses=tuple(cell.sub_microbatch for cell in cells if (cell.module, cell.chunk) == loss),
        )

    def _error(self, fault: str) -> PlanError:
        return PlanError(rank=self.rank, fault=fault)

    def _parts(self, plan: RankPlan) -> list[Part]:
        """The plan's sub-microbatches, which must hold every instance of the batch exactly once."""
        parts, left = [], _instances(plan.batch)
        for sub in plan.sub_microbatches:
            if sub.module not in self.job.module_index or not sub.instances:
                raise self._error(f"sub-microbatch {sub.id}: no module {sub.module!r}, or no instances")
            for ref in sub.instances:
                units = left.pop((sub.module, sub.microbatch, ref.sample, ref.index), 0)
                if units != ref.units:
                    raise self._error(
                        f"sub-microbatch {sub.id}: instance {ref.index} of sample {ref.sample} of microbatch "
                        f"{sub.microbatch} has {ref.units} units in the plan, {units} are left of it in the batch"
                    )
            samples, indexes, sizes = zip(*((r.sample, r.index, r.units) for r in sub.instances), strict=True)
            module = self.job.module_index[sub.module]
            parts.append(
                Part(module=module, microbatch=sub.microbatch, samples=samples, instances=indexes, sizes=sizes)
            )
        if left:
            raise self._error(f"no sub-microbatch holds {len(left)} of the instances, one is {next(iter(left))}")
        if len({sub.id for sub in plan.sub_microbatches}) != len(parts):
            raise self._error("two sub-microbatches have the same id")
        return parts

    def _cells(self, graph: _Graph, edges: Sequence[Edge], schedule: pb.RankSchedule) -> dict[Cell, CellPlan]:
        """Every cell of this rank, run in the ways that its forward states, split where it has an input half."""
        # A plan may state billions of layers in a few bytes: no more are looked at than tell that it is wrong.
        enough = 1 + max((chunk.num_layers for chunk in self.partition.chunks), default=0)
        stated = {
            _source(action): tuple(islice(_ways(action), enough))
            for action in schedule.actions
            if action.kind == pb.ACTION_KIND_FORWARD
        }
        split = {_source(action) for action in schedule.actions if _COMPUTE.get(action.kind) in _HALVES}
        if split and not self.job.split_backward:
            raise self._error(f"the backward of {min(split)} is split; options.split_backward of the job is false")
        inputs: dict[Cell, list[Edge]] = defaultdict(list)
        outputs: dict[Cell, list[Edge]] = defaultdict(list)
        for edge in edges:
            inputs[edge.consumer].append(edge)
            outputs[edge.producer].append(edge)
        found: dict[Cell, CellPlan] = {}
        for number, chunk in enumerate(graph.work.cell_chunk):
            if chunk.rank != self.rank:
                continue
            cell, part = graph.cell(number), graph.work.parts[graph.work.cell_part[number]]
            instances, hand_offs = _listed(part), self.hand_offs[cell.module]
            found[cell] = CellPlan(
                cell=cell,
                microbatch=part.microbatch,
                instances=instances,
                output_rows=hand_offs.output.rows_of(instances),
                result_rows=hand_offs.handed_on.rows_of(instances),
                inputs=tuple(inputs[cell]),
                outputs=tuple(outputs[cell]),
                ways=self._checked_ways(cell, chunk.num_layers, stated.get(cell, ())),
                phases=_phases(graph.work, number, split=cell in split),
            )
        return found

    def _checked_ways(self, cell: Cell, num_layers: int, ways: tuple[str, ...]) -> tuple[str, ...]:
        ways = ways or (STORE,) * num_layers
        if len(ways) != num_layers:
            found = f"{len(ways)} layers" if len(ways) < num_layers else "more layers"
            raise self._error(f"forward of {cell}: strategies for {found}, the chunk has {num_layers}")
        unknown = sorted(set(ways).difference(self.strategies))
        if unknown:
            raise self._error(f"forward of {cell}: strategies {unknown}; this executor runs {list(self.strategies)}")
        return ways

    def _step(
        self, position: int, action: pb.Action, cells: Mapping[Cell, CellPlan], parcels: Mapping[Parcel, Edge]
    ) -> Step:
        cell = _source(action)

        def fault(text: str) -> PlanError:
            return self._error(f"action {position}, {_kind_name(action)} of {cell}: {text}")

        if action.kind in _COMPUTE:
            phase = _COMPUTE[action.kind]
            work = cells.get(cell)
            if work is None:
                raise fault("no such chunk and sub-microbatch on this rank")
            if phase == Phase.BACKWARD_WEIGHT and action.strategies:
                raise fault("states strategies; the weight half has none")
            if phase != Phase.BACKWARD_WEIGHT and (tuple(_ways(action)) or (STORE,) * len(work.ways)) != work.ways:
                raise fault("its strategies are not those of the forward")
            return ComputeStep(action=action, work=work, phase=phase)
        if action.kind not in _TRANSFERS:
            raise fault("no such kind of action")
        sends, gradient = _TRANSFERS[action.kind]
        target = Cell(action.consumer_module, action.consumer_chunk, action.consumer_sub_microbatch)
        parcel = Parcel(gradient=gradient, source=cell, target=target)
        edge = parcels.get(parcel)
        if edge is None:
            raise fault(f"nothing on this rank needs the {parcel}")
        source, taker = edge.producer_rank, edge.consumer_rank
        if gradient:
            source, taker = taker, source
        if (self.rank, action.peer) != ((source, taker) if sends else (taker, source)):
            raise fault(f"the {parcel} goes from rank {source} to {taker}; the peer is {action.peer}")
        return TransferStep(
            action=action, parcel=parcel, sends=sends, peer=action.peer, shape=edge.shape, dtype=edge.dtype
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Graph:
    """Cells and edges of one plan under their names in the plan."""

    compiler: Compiler
    work: Work
    ids: Sequence[int]

    def cell(self, number: int) -> Cell:
        chunk = self.work.cell_chunk[number]
        return Cell(self.work.job.modules[chunk.module].name, chunk.index, self.ids[self.work.cell_part[number]])

    def edges(self) -> list[Edge]:
        """All edges that start or end on this rank."""
        rank, chunk = self.compiler.rank, self.work.cell_chunk
        return [
            self._edge(edge)
            for edge in self.work.edges
            if rank in (chunk[edge.producer].rank, chunk[edge.consumer].rank)
        ]

    def _edge(self, edge: WorkEdge) -> Edge:
        work, producer, consumer = self.work, self.cell(edge.producer), self.cell(edge.consumer)
        part = work.parts[work.cell_part[edge.producer]]
        instances, hand_offs = _listed(part), self.compiler.hand_offs[producer.module]
        positions, hand_off = None, hand_offs.output
        if producer.module != consumer.module:
            wanted = set(work.parts[work.cell_part[edge.consumer]].samples)
            positions = tuple(i for i, sample in enumerate(part.samples) if sample in wanted)
            instances, hand_off = tuple(instances[i] for i in positions), hand_offs.handed_on
        rows = hand_off.rows_of(instances)
        return Edge(
            producer=producer,
            consumer=consumer,
            producer_rank=work.cell_chunk[edge.producer].rank,
            consumer_rank=work.cell_chunk[edge.consumer].rank,
            positions=positions,
            instances=instances,
            rows=rows,
            shape=hand_off.shape(sum(rows)),
            dtype=hand_off.dtype,
            has_gradient=work.has_backward(edge.producer),
        )


def _phases(work: Work, number: int, *, split: bool) -> tuple[Phase, ...]:
    """All that must run of a cell; a frozen module's has no weight half."""
    if not work.has_backward(number):
        return (Phase.FORWARD,)
    if not split:
        return Phase.FORWARD, Phase.BACKWARD
    if work.module_of(number).frozen:
        return Phase.FORWARD, Phase.BACKWARD_INPUT
    return Phase.FORWARD, *_HALVES


def _parcels(edges: Iterable[Edge]) -> dict[Parcel, Edge]:
    """Everything that travels to or from this rank."""
    crossing = [edge for edge in edges if edge.crosses]
    found = {edge.activation: edge for edge in crossing}
    found.update({edge.gradient: edge for edge in crossing if edge.has_gradient})
    return found


def _source(action: pb.Action) -> Cell:
    return Cell(action.module, action.chunk, action.sub_microbatch)


def _kind_name(action: pb.Action) -> str:
    known = action.kind in pb.ActionKind.values()
    return pb.ActionKind.Name(action.kind) if known else f"kind {int(action.kind)}"


def _ways(action: pb.Action) -> Iterator[str]:
    for run in action.strategies:
        for _ in range(run.num_layers):
            yield run.name


def _listed(part: Part) -> tuple[Instance, ...]:
    return tuple(map(Instance, part.samples, part.instances, part.sizes))


def _chunk_key(chunk: pb.Chunk) -> tuple[str, int, int, int, int]:
    return chunk.module, chunk.index, chunk.rank, chunk.first_layer, chunk.num_layers


def _instances(batch: pb.Batch) -> dict[tuple[str, int, int, int], int]:
    """Units of every instance of a batch, by module, microbatch, sample and index."""
    return {
        (module, m, s, i): units
        for m, microbatch in enumerate(batch.microbatches)
        for s, sample in enumerate(microbatch.samples)
        for module, held in sample.instances.items()
        for i, units in enumerate(held.units)
    }
