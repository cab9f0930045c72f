"""Times both halves of one layer's backward as the executor runs them, and counts what is held between them."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from dip.lowering import Phase

from trainer_agent.backward import StageRunner
from trainer_agent.program import Cell, CellPlan, Edge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainer_agent.stages import Chunk, ChunkModule, ModuleHandOffs, StageTask

WARM_UP = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class HalfTimes:
    """What the halves of one layer's backward take.

    Parameters
    ----------
    input_us, weight_us
        Medians; what is recomputed or brought back counts to the input half.
    between_bytes
        Held from one to the other, parameters not counted.
    """

    input_us: float
    weight_us: float
    between_bytes: int


class HalfTimer:
    """Times the halves of the only layer of a chunk.

    Parameters
    ----------
    module, chunk, hand_offs, inputs
        As of the `StageRunner`.
    alone
        Whether the layer runs without ``enter``, ``leave`` and ``loss``.
    frozen
        Whether the module is frozen, so that there is no weight half.
    device, repeats
        Where, and how often.
    """

    def __init__(
        self,
        *,
        module: ChunkModule,
        chunk: Chunk,
        hand_offs: ModuleHandOffs,
        inputs: Sequence[str],
        alone: bool,
        frozen: bool,
        device: torch.device,
        repeats: int,
    ) -> None:
        if alone:
            chunk = replace(chunk, is_first=False, is_last=False, is_loss=False)
        self._chunk, self._hand_offs, self._device, self._repeats = chunk, hand_offs, device, repeats
        self._phases = (Phase.FORWARD, Phase.BACKWARD_INPUT) + (() if frozen else (Phase.BACKWARD_WEIGHT,))
        self._runner = StageRunner(
            chunk=chunk, module=module, hand_offs=hand_offs, input_modules=inputs, frozen=frozen, device=device
        )

    def measure(self, task: StageTask, x: torch.Tensor, way: str) -> HalfTimes:
        """Time the halves of a layer that runs in one of the ways.

        Parameters
        ----------
        task
            What it works on.
        x
            Its input, where it does not enter its module.
        way
            A strategy.
        """
        work = self._work(task, way)
        arrived = [x] if work.inputs else []
        first: list[float] = []
        second: list[float] = []
        between = 0
        for _ in range(WARM_UP + self._repeats):
            output = self._runner.forward(work, arrived, task.batch, training=True)
            gradients = [] if self._chunk.is_loss else [torch.ones_like(output)]
            first.append(self._taken_us(partial(self._runner.backward_input, work, gradients, loss_scale=1.0)))
            if not work.is_split:
                continue
            between = self._runner.held_bytes(work)
            second.append(self._taken_us(partial(self._runner.backward_weight, work)))
        return HalfTimes(
            input_us=statistics.median(first[WARM_UP:]),
            weight_us=statistics.median(second[WARM_UP:]) if second else 0.0,
            between_bytes=between,
        )

    def _work(self, task: StageTask, way: str) -> CellPlan:
        """A cell that nobody else on the pipeline knows of."""
        chunk, cell = self._chunk, Cell(self._chunk.module, 0, 0)
        handed = self._hand_offs.handed_on if chunk.is_last else self._hand_offs.output
        rows = task.result_rows if chunk.is_last else task.output_rows
        before, after = cell._replace(chunk=-1), cell._replace(chunk=1)
        inside = self._hand_offs.output
        shape = inside.shape(sum(task.output_rows))
        return CellPlan(
            cell=cell,
            microbatch=task.microbatch,
            instances=task.instances,
            output_rows=task.output_rows,
            result_rows=task.result_rows,
            inputs=() if chunk.is_first else (_edge(before, cell, task, task.output_rows, shape, inside.dtype),),
            outputs=() if chunk.is_loss else (_edge(cell, after, task, rows, handed.shape(sum(rows)), handed.dtype),),
            ways=(way,),
            phases=self._phases,
        )

    def _taken_us(self, call: Callable[[], object]) -> float:
        self._synchronize()
        start = time.perf_counter_ns()
        call()
        self._synchronize()
        return (time.perf_counter_ns() - start) / 1000

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _edge(
    producer: Cell,
    consumer: Cell,
    task: StageTask,
    rows: tuple[int, ...],
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> Edge:
    return Edge(
        producer=producer,
        consumer=consumer,
        producer_rank=0,
        consumer_rank=0,
        positions=None,
        instances=task.instances,
        rows=rows,
        shape=shape,
        dtype=dtype,
        has_gradient=True,
    )
