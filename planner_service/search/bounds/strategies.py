"""What the layers of each cell can save in memory, and what that takes: for bounds, strategy by strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from planner_service.compiling import kernel

if TYPE_CHECKING:
    from dip.costs import Cost
    from dip.work import Work
    from numpy.typing import NDArray

    from planner_service.domain.graph import Ints

    Floats = NDArray[np.float64]


class Options(NamedTuple):
    """Ways to run a layer, of all runs of identical layers of all kinds of cells.

    Parameters
    ----------
    first_run
        [kinds + 1] Runs of each kind of cell: those of kind ``k`` are ``first_run[k] : first_run[k + 1]``.
    first
        [runs + 1] Options of each run, in the same way.
    layers
        [runs] Number of layers of the run.
    kept, last
        [options] Bytes that a layer holds at least: up to the start of what gives its gradient, and from there on.
    most
        [options] Bytes that it holds at most.
    time_us
        [options] What it takes, on its rank, beyond the least times of its phases.
    """

    first_run: Ints
    first: Ints
    layers: Ints
    kept: Floats
    last: Floats
    most: Floats
    time_us: Floats


def options_of(work: Work) -> Options:
    """Ways to run the layers of all cells."""
    first_run, first, layers, rows = [0], [0], [], []
    known: dict[tuple[int, int, int, float, bool], list[tuple[float, float, float, float]]] = {}
    for kind in work.kinds:
        speed, module = work.job.speed[kind.chunk.rank], work.job.modules[kind.chunk.module]
        for run, count in work.job.cost_book.runs(kind.chunk):
            key = id(run), kind.units, kind.squares, speed, module.frozen
            if key not in known:
                costs = [run.table.at(name, kind.units, kind.squares) for name in run.table.strategies]
                known[key] = _options(costs, speed, frozen=module.frozen, split=work.job.split_backward)
            rows += known[key]
            first.append(len(rows))
            layers.append(count)
        first_run.append(len(layers))
    kept, last, most, time_us = np.array(rows, dtype=np.float64).reshape(-1, 4).T.copy()
    return Options(np.array(first_run), np.array(first), np.array(layers, dtype=np.int64), kept, last, most, time_us)


def _options(costs: list[Cost], speed: float, *, frozen: bool, split: bool) -> list[tuple[float, float, float, float]]:
    """Bytes kept, held last, and held at most, and extra time, of each strategy of one layer."""
    weights = [0.0 if frozen else cost.backward_weight_us for cost in costs]
    backwards = [cost.backward_input_us + weight for cost, weight in zip(costs, weights, strict=True)]
    backward = min(cost.backward_input_us for cost in costs) + min(weights) if split else min(backwards)
    least = min(cost.forward_us for cost in costs) + backward
    made = []
    for cost, took in zip(costs, backwards, strict=True):
        halves = cost.split_activation_bytes if split else cost.activation_bytes
        held = cost.activation_bytes, halves
        made.append((held[0], min(held), max(held), (cost.forward_us + took - least) / speed))
    return made


@kernel
def savings(options: Options, kind: Ints, kept_us: Ints, last_us: Ints) -> tuple[float, Floats, Floats]:
    """Area that cells hold at their fastest, and what leaner strategies save: the lower convex hull of each layer.

    Parameters
    ----------
    options
        Ways to run the layers of all kinds of cells.
    kind
        [k] Kinds of some cells.
    kept_us, last_us
        [k] How long each of them holds what it keeps, and what it holds last.

    Returns
    -------
    float
        Bytes times microseconds if all layers are as fast as they can be.
    Floats, Floats
        Bytes times microseconds that each step to a leaner strategy saves, and the microseconds that it takes; steps of
        one layer are in the order in which they save less and less for their time.
    """
    area = 0.0
    saved, time_us = [0.0 for _ in range(0)], [0.0 for _ in range(0)]
    for k in range(kind.shape[0]):
        for run in range(options.first_run[kind[k]], options.first_run[kind[k] + 1]):
            begin, end = options.first[run], options.first[run + 1]
            size = options.kept[begin:end] * kept_us[k] + options.last[begin:end] * last_us[k]
            takes, layers = options.time_us[begin:end], options.layers[run]
            at = 0
            for other in range(1, end - begin):
                if (takes[other], size[other]) < (takes[at], size[at]):
                    at = other
            area += layers * size[at]
            while True:
                best, steepest = at, 0.0
                for other in range(end - begin):
                    if takes[other] > takes[at] and size[other] < size[at]:
                        slope = (size[at] - size[other]) / (takes[other] - takes[at])
                        if slope > steepest:
                            best, steepest = other, slope
                if best == at:
                    break
                saved.append(layers * (size[at] - size[best]))
                time_us.append(layers * (takes[best] - takes[at]))
                at = best
    return area, np.array(saved), np.array(time_us)


@kernel
def most_held(options: Options, kind: Ints) -> Floats:
    """Bytes [k] that each of some cells holds at most, in any strategy."""
    held = np.zeros(kind.shape[0])
    for k in range(kind.shape[0]):
        for run in range(options.first_run[kind[k]], options.first_run[kind[k] + 1]):
            held[k] += options.layers[run] * options.most[options.first[run] : options.first[run + 1]].max()
    return held + 1.0  # bytes are rounded up
