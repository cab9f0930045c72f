"""The shortest schedule of a tiny batch within its memory, by CP-SAT: every order, strategy and split at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exhaustive import ways_of
from ortools.sat.python import cp_model

if TYPE_CHECKING:
    from dip.work import CellCost, Work


def shortest_within_memory_us(work: Work) -> int | None:
    """Least makespan of any schedule that keeps to the memory; None where there is none."""
    return _Model(work).solve()


def _modes(work: Work, cell: int) -> set[tuple[CellCost, bool]]:
    """Costs of a cell in each way, with a whole backward and, where the job allows it, in halves."""
    costs = {work.cost(cell, way) for way in ways_of(work, cell)}
    split = work.job.split_backward and work.has_backward(cell)
    return {(cost, halves) for cost in costs for halves in ((False, True) if split else (False,))}


@dataclass
class _Model:
    work: Work
    model: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    running: dict[int, list[cp_model.IntervalVar]] = field(default_factory=dict)
    holding: dict[int, list[tuple[cp_model.IntervalVar, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        modes = [_modes(self.work, cell) for cell in range(self.work.num_cells)]
        self.horizon = sum(max(c.forward_us + c.backward_us + c.backward_weight_us + 2 for c, _ in m) for m in modes)
        self.horizon += 2 * sum(edge.hop_us for edge in self.work.edges)
        self.makespan = self._time()
        self.forward = [(self._time(), self._time()) for _ in modes]
        self.gradient = [(self._time(), self._time()) for _ in modes]
        for cell, of_cell in enumerate(modes):
            chosen = [self.model.new_bool_var("") for _ in of_cell]
            self.model.add_exactly_one(chosen)
            for (cost, halves), mode in zip(sorted(of_cell), chosen, strict=True):
                self._cell(cell, cost, halves, mode)
        for edge in self.work.edges:
            self.model.add(self.forward[edge.consumer][0] >= self.forward[edge.producer][1] + edge.hop_us)
            if self.work.has_backward(edge.producer):
                self.model.add(self.gradient[edge.producer][0] >= self.gradient[edge.consumer][1] + edge.hop_us)
        for tasks in self.running.values():
            self.model.add_no_overlap(tasks)
        for rank, held in self.holding.items():
            if limit := self.work.job.memory_bytes[rank]:
                room = limit - self.work.static_bytes[rank]
                self.model.add_cumulative([task for task, _ in held], [size for _, size in held], room)
        self.model.minimize(self.makespan)

    def _time(self) -> cp_model.IntVar:
        return self.model.new_int_var(0, self.horizon, "")

    def _cell(self, cell: int, cost: CellCost, halves: bool, mode: cp_model.IntVar) -> None:
        """What a cell does in a mode, and what it holds meanwhile."""
        rank = self.work.cell_rank[cell]
        begin, end = self.forward[cell]
        self._run(rank, begin, end, cost.forward_us, mode)
        if not self.work.has_backward(cell):
            return
        first, done = self.gradient[cell]
        self.model.add(first >= end)
        if not halves:
            self._run(rank, first, done, cost.backward_us, mode)
            self._hold(rank, begin, done, cost.kept_bytes, mode)
            return
        self._run(rank, first, done, cost.backward_input_us, mode)
        last = done
        if cost.backward_weight_us:
            start, last = self._time(), self._time()
            self.model.add(start >= done)
            self._run(rank, start, last, cost.backward_weight_us, mode)
        self._hold(rank, begin, first, cost.kept_bytes, mode)
        self._hold(rank, first, last, cost.split_kept_bytes, mode)

    def _run(self, rank: int, begin: cp_model.IntVar, end: cp_model.IntVar, time: int, mode: cp_model.IntVar) -> None:
        self.running.setdefault(rank, []).append(self.model.new_optional_interval_var(begin, time, end, mode, ""))
        self.model.add(self.makespan >= end)

    def _hold(self, rank: int, begin: cp_model.IntVar, end: cp_model.IntVar, size: int, mode: cp_model.IntVar) -> None:
        held = self.model.new_optional_interval_var(begin, self._time(), end, mode, "")
        self.holding.setdefault(rank, []).append((held, size))

    def solve(self) -> int | None:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        status = solver.solve(self.model)
        if status == cp_model.INFEASIBLE:
            return None
        if status != cp_model.OPTIMAL:
            raise RuntimeError(f"CP-SAT says {solver.status_name(status)}")
        return round(solver.objective_value)
