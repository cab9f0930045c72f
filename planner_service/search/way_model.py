"""CP-SAT on the memory of one rank: how each cell's layers run and whether its backward is split, the order kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from ortools.sat.python import cp_model

from planner_service.search.way_prices import made_to_fit, price_bytes, reduced_prices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dip.memory import Way
    from numpy.typing import NDArray

    from planner_service.domain.graph import Ints

CORE = 3
"""Options of each cell that are left to CP-SAT, besides the hint."""

NO_LIMIT = 1 << 60
"""Room where there is enough of it."""

UNITS = 10_000
"""Bytes are counted in so many parts of a rank's room."""

WIDEST = 1 << 40
"""More units than any cells hold."""

GAP = 1e-3
"""A choice so close to the best is good enough: prices are estimates."""

SEEDS = 1 << 31
"""Number of different seeds that the solver takes; the contract's have 63 bits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One way to run a cell.

    Parameters
    ----------
    way
        How its layers run.
    halves
        Whether its backward is split.
    kept_bytes, between_bytes
        Held from the start of the forward to the end of a whole backward, or to the start of an input half, and from
        then to the end of the weight half.
    price
        What it costs: what is minimized in sum, a whole number.
    """

    way: Way
    halves: bool
    kept_bytes: int
    between_bytes: int
    price: int

    @property
    def levels(self) -> tuple[int, int, int]:
        """Bytes held before the backward, at its place, and from then to the end of the weight half."""
        if not self.halves:
            return self.kept_bytes, self.kept_bytes, 0
        return self.kept_bytes, self.between_bytes, self.between_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Places of a cell's forward, of its backward or input half, and of its weight half, in the order of its rank.

    Where the backward is not split, the place of the weight half is that of the backward.
    """

    forward: int
    backward: int
    weight: int


class WayModel:
    """One option for each cell, so that the rank never holds more than its room.

    Parameters
    ----------
    spans
        By cell.
    options
        By cell; the one of now first. With these of now, the rank stays within its room.
    room_bytes
        What the rank may hold.
    """

    def __init__(self, spans: Mapping[int, Span], options: Mapping[int, Sequence[Option]], room_bytes: int) -> None:
        self.cells = list(spans)
        self.spans = spans
        self.places = 2 + max((span.weight for span in spans.values()), default=0)
        self.tight = self._tight_places(options, room_bytes)
        self.picked = {cell: min(of_cell, key=lambda option: option.price) for cell, of_cell in options.items()}
        open_cells = [
            cell
            for cell, of_cell in options.items()
            if len(of_cell) > 1 and self.tight[spans[cell].forward : spans[cell].weight + 1].any()
        ]
        self.options: Mapping[int, Sequence[Option]] = {cell: options[cell] for cell in open_cells}
        decided = {cell: option.levels for cell, option in self.picked.items() if cell not in self.options}
        self.room = np.where(self.tight, room_bytes - self._held(decided), NO_LIMIT)
        if open_cells:
            self.options = self._core()
        self.model = cp_model.CpModel()
        self.chosen = {cell: [self.model.new_bool_var("") for _ in of_cell] for cell, of_cell in self.options.items()}
        self.choose_one()
        self.stay_within_memory()
        self.minimize_price()

    def _held(self, levels: Mapping[int, tuple[int, int, int]]) -> Ints:
        """Bytes that the rank holds at each place, each cell at these levels."""
        change = np.zeros(self.places, dtype=np.int64)
        for cell, of_cell in levels.items():
            for place, size in _changes(self.spans[cell], of_cell):
                change[place] += size
        return np.cumsum(change)

    def _tight_places(self, options: Mapping[int, Sequence[Option]], room_bytes: int) -> NDArray[np.bool_]:
        """Places at which the rank would hold more than its room if every cell held the most that it may."""
        most = {}
        for cell, of_cell in options.items():
            before, at, behind = zip(*(option.levels for option in of_cell), strict=True)
            most[cell] = max(before), max(at), max(behind)
        tight: NDArray[np.bool_] = self._held(most) > room_bytes
        return tight

    def _core(self) -> dict[int, list[Option]]:
        """Options that may be in a best choice, that of a good choice first.

        Those are the cheapest when bytes are paid for at what they are worth.
        """
        many = max(map(len, self.options.values()))
        price = np.full((len(self.options), many), np.inf)
        level = np.zeros((len(self.options), many, 3), dtype=np.int64)
        for i, of_cell in enumerate(self.options.values()):
            price[i, : len(of_cell)] = [option.price for option in of_cell]
            level[i, : len(of_cell)] = [option.levels for option in of_cell]
        spans = np.array([(s.forward, s.backward, s.weight) for s in map(self.spans.get, self.options) if s])
        now = np.zeros(len(spans), dtype=np.int64)
        made_to_fit(price, level, spans, self.room, now)
        goal = float(np.take_along_axis(price, now[:, None], axis=1).sum())
        worth, _ = price_bytes(price, level, spans, self.room, goal)
        reduced = reduced_prices(price, level, spans, worth)
        good = reduced.argmin(axis=1)
        fits = made_to_fit(price, level, spans, self.room, good)
        if not fits or np.take_along_axis(price, good[:, None], axis=1).sum() > goal:
            good = now
        core: dict[int, list[Option]] = {}
        for i, (cell, of_cell) in enumerate(self.options.items()):
            kept = dict.fromkeys((int(good[i]), *np.argsort(reduced[i], kind="stable")[:CORE].tolist()))
            core[cell] = [of_cell[o] for o in kept if o < len(of_cell)]
        return core

    def choose_one(self) -> None:
        """Each cell runs in one way: sum of x[c, w] over its options w = 1."""
        for of_cell in self.chosen.values():
            self.model.add_exactly_one(of_cell)
            for place, variable in enumerate(of_cell):
                self.model.add_hint(variable, place == 0)

    def stay_within_memory(self) -> None:
        """What changes at place p fits in what is left: more[p] = more[p - 1] + sum x[c, w] * d[c, w, p] <= left[p].

        left[p] is what the hint leaves of the room at p; d is what option w changes at p against p - 1, and against the
        hint. Bytes are counted in units, each rounded to the safe side. Places that matter are those before something
        may be given back, where not all fits anyway.
        """
        hinted = {cell: of_cell[0].levels for cell, of_cell in self.options.items()}
        left = self.room - self._held(hinted)
        unit = max(1, int(self.room[self.tight].max(initial=0)) // UNITS)
        terms: list[list[tuple[cp_model.IntVar, int]]] = [[] for _ in range(self.places)]
        falls = np.zeros(self.places, dtype=np.bool_)
        for span in self.spans.values():
            falls[[span.backward, span.backward + 1, span.weight + 1]] = True
        for cell in self.options:
            span = self.spans[cell]
            now = hinted[cell]
            for option, variable in zip(self.options[cell], self.chosen[cell], strict=True):
                levels = tuple(-((was - becomes) // unit) for was, becomes in zip(now, option.levels, strict=True))
                for place, size in _changes(span, levels):
                    if size:
                        terms[place].append((variable, size))
        more: cp_model.LinearExpr | int = 0
        pending: list[tuple[cp_model.IntVar, int]] = []
        least = NO_LIMIT
        for place in range(self.places - 1):
            pending += terms[place]
            fits = int(left[place]) // unit
            if not falls[place + 1] or not self.tight[place] or not (pending or fits < least):
                continue
            variables, sizes = zip(*pending, strict=True) if pending else ((), ())
            level = self.model.new_int_var(-WIDEST, fits, "")
            self.model.add(level == cp_model.LinearExpr.weighted_sum(variables, sizes) + more)
            self.model.add_hint(level, 0)
            more, pending, least = level, [], fits

    def minimize_price(self) -> None:
        """Minimize the price of all cells: sum of x[c, w] * price[c, w]."""
        variables, prices = [], []
        for cell, of_cell in self.chosen.items():
            least = self.picked[cell].price
            variables += of_cell
            prices += [option.price - least for option in self.options[cell]]
        self.model.minimize(cp_model.LinearExpr.weighted_sum(variables, prices))

    def solve(self, *, seconds: float, effort: float, seed: int) -> dict[int, Option]:
        """Search for at most ``seconds`` and at most ``effort``; at worst, all cells keep the options of now."""
        if not self.chosen:
            return dict(self.picked)
        solver = cp_model.CpSolver()
        if seconds < float("inf"):
            solver.parameters.max_time_in_seconds = max(0.001, seconds)
        solver.parameters.max_deterministic_time = effort
        solver.parameters.relative_gap_limit = GAP
        solver.parameters.cp_model_probing_level = 0
        solver.parameters.symmetry_level = 0
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = seed % SEEDS
        if solver.solve(self.model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return self.picked | {cell: of_cell[0] for cell, of_cell in self.options.items()}
        found = dict(self.picked)
        for cell, of_cell in self.chosen.items():
            found[cell] = next(
                option for option, x in zip(self.options[cell], of_cell, strict=True) if solver.boolean_value(x)
            )
        return found


def _changes(span: Span, levels: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Places at which what a cell holds changes, each with by how much."""
    before, at, behind = levels
    yield span.forward, before
    yield span.backward, at - before
    yield span.backward + 1, behind - at
    yield span.weight + 1, -behind
