"""What the cells of a chunk cost: the sums of their layers, rounded once, each made once for all work of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dip.costs import STORE, ZERO, duration_us, kept_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.costs import Cost
    from dip.job import LayerRun, Module
    from dip.memory import Way
    from dip.work import Chunk


class CellCost(NamedTuple):
    """What a cell takes on its rank, in whole microseconds, and keeps, in whole bytes.

    Parameters
    ----------
    forward_us, backward_us, backward_input_us, backward_weight_us
        Durations; ``backward_us`` is that of a backward that is not split. A frozen module's weight half takes 0.
    kept_bytes
        Held from the start of the forward to the end of the backward, or to the start of its input half.
    split_kept_bytes
        Held from the start of the input half to the end of the weight half.
    """

    forward_us: int
    backward_us: int
    backward_input_us: int
    backward_weight_us: int
    kept_bytes: int
    split_kept_bytes: int


class CostBook:
    """Costs of the cells of one job, whatever its partition and its batch.

    A planner compares dozens of partitions, and ranks are many: chunks of equally many layers of the same runs, on
    ranks of one speed, cost the same, and share what was added up for one of them.

    Parameters
    ----------
    modules, speed
        Those of the job: its modules, and the relative speed of each rank.
    """

    def __init__(self, modules: Sequence[Module], speed: Sequence[float]) -> None:
        self._modules, self._speed = modules, speed
        self._chunks: dict[tuple[object, ...], tuple[tuple[object, ...], list[tuple[LayerRun, int]]]] = {}
        self._known: dict[tuple[object, ...], CellCost] = {}

    def cost(self, chunk: Chunk, *, units: int, squares: int, way: Way = ()) -> CellCost:
        """Cost of a chunk for instances whose sizes sum to ``units`` and their squares to ``squares``.

        Raises
        ------
        ValueError
            If ``way`` names a strategy that a layer does not have.
        """
        key = self.likeness(chunk), units, squares, way
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._made(chunk, units, squares, way)
        return found

    def likeness(self, chunk: Chunk) -> tuple[object, ...]:
        """Equal for chunks that cost the same: as many layers of the same runs, on ranks of one speed."""
        return self._seen(chunk)[0]

    def runs(self, chunk: Chunk) -> list[tuple[LayerRun, int]]:
        """Runs of identical layers that a chunk has layers of, each with their number, in layer order."""
        return self._seen(chunk)[1]

    def _seen(self, chunk: Chunk) -> tuple[tuple[object, ...], list[tuple[LayerRun, int]]]:
        key = chunk.module, chunk.first_layer, chunk.num_layers, self._speed[chunk.rank]
        found = self._chunks.get(key)
        if found is None:
            runs = self._modules[chunk.module].runs_of(chunk.first_layer, chunk.num_layers)
            likeness = chunk.module, self._speed[chunk.rank], *((run.start, count) for run, count in runs)
            found = self._chunks[key] = likeness, runs
        return found

    def _made(self, chunk: Chunk, units: int, squares: int, way: Way) -> CellCost:
        module, speed = self._modules[chunk.module], self._speed[chunk.rank]
        ways = way or ((STORE, chunk.num_layers),)
        total = layers_cost(module, chunk.first_layer, ways, units=units, squares=squares)
        weight_us = 0.0 if module.frozen else total.backward_weight_us
        return CellCost(
            forward_us=duration_us(total.forward_us, speed),
            backward_us=duration_us(total.backward_input_us + weight_us, speed),
            backward_input_us=duration_us(total.backward_input_us, speed),
            backward_weight_us=0 if module.frozen else duration_us(weight_us, speed),
            kept_bytes=kept_bytes(total.activation_bytes),
            split_kept_bytes=kept_bytes(total.split_activation_bytes),
        )


def layers_cost(module: Module, first_layer: int, way: Way, *, units: int, squares: int) -> Cost:
    """Sum of the layers from ``first_layer`` on, as many as ``way`` covers, each run in its way.

    Raises
    ------
    ValueError
        If a layer does not have the strategy that ``way`` gives it.
    """
    total, layer = ZERO, first_layer
    for name, count in way:
        for run, inside in module.runs_of(layer, count):
            if name not in run.table.strategies:
                allowed = ", ".join(run.table.strategies)
                raise ValueError(f"strategy {name!r} of module {module.name!r}, layer {layer}: allowed are {allowed}")
            total = total.plus(run.table.at(name, units, squares), inside)
        layer += count
    return total
