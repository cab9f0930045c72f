"""CP-SAT on the interleaving: the whole of a small instance, with proof; a window in time of a large one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner_service.search.order_model import OrderModel
from planner_service.search.relaxation import relax

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from planner_service.domain.graph import Ints, TaskGraph


@dataclass(frozen=True, kw_only=True, slots=True)
class ExactResult:
    """What the solver found.

    Parameters
    ----------
    start
        [3n] A start of each task in the order found: earliest times are the caller's to compute. None: no better one.
    bound_us
        No order of the free tasks ends earlier, the others as they were.
    """

    start: Ints | None
    bound_us: int


class WindowModel:
    """The free tasks of a schedule; all others stay behind and before what they are behind and before now.

    Parameters
    ----------
    graph
        The tasks, all ways decided.
    start
        [3n] Starts of the incumbent; -1 where there is no task.
    free
        [3n] Tasks that may move: all of them, or those that start in some window of time.
    """

    def __init__(self, graph: TaskGraph, start: Ints, free: NDArray[np.bool_]) -> None:
        self._model = OrderModel(graph, start, relax(graph, start, free & (start >= 0), reach=0), all_ends=False)

    def solve(self, *, seconds: float, effort: float, seed: int) -> ExactResult:
        """Search for at most ``seconds``, and at most ``effort``, the solver's own unit that no clock decides."""
        found = self._model.solve(seconds=seconds, effort=effort, seed=seed, thorough=True)
        return ExactResult(start=found.start, bound_us=found.bound_us)
