"""The same training in one process, without pipeline, planner or faults: what every loss must be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from benchmarks.faults.model import DTYPE, INPUTS, LAYERS, LEARNING_RATE, Batch, TinyChunk, hand_offs
from trainer_agent import Chunk, GatheredResults, Instance, StageTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn


class Reference:
    """Ordinary training with plain SGD, of all replicas' batches at once."""

    def __init__(self) -> None:
        self._modules = {name: TinyChunk(_whole(name)) for name in LAYERS}
        self._hand_offs = hand_offs()
        self._optimizer = torch.optim.SGD(self._named().values(), lr=LEARNING_RATE)

    def parameters(self) -> dict[str, torch.Tensor]:
        """Copy the parameters as they are now."""
        return {name: parameter.detach().clone() for name, parameter in self._named().items()}

    def load(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """Go on from parameters."""
        with torch.no_grad():
            for name, parameter in self._named().items():
                parameter.copy_(parameters[name])

    def step(self, batches: Sequence[Batch]) -> float:
        """Run one iteration; returns its loss."""
        weight = sum(batch.weight() for batch in batches)
        total = 0.0
        for batch in batches:
            for microbatch in range(len(batch.samples)):
                loss = self._loss(batch, microbatch) / weight
                total += float(loss.detach())
                loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._optimizer.zero_grad()
        return total

    def _named(self) -> dict[str, nn.Parameter]:
        modules = self._modules.items()
        return {f"{name}.{of}": parameter for name, chunk in modules for of, parameter in chunk.named_parameters()}

    def _loss(self, batch: Batch, microbatch: int) -> torch.Tensor:
        results: dict[str, GatheredResults] = {}
        loss = torch.zeros((), dtype=DTYPE)
        for name, module in self._modules.items():
            task = self._task(module.chunk, batch, microbatch)
            results[name] = GatheredResults({})
            if not task.instances:
                continue
            x = module.enter(task, {of: results[of] for of in INPUTS[name]})
            for layer in module.layers:
                x = layer(x, task)
            if module.chunk.is_loss:
                loss = module.loss(x, task)
                continue
            rows = torch.split(module.leave(x, task), list(task.result_rows))
            results[name] = GatheredResults(
                {(one.sample, one.index): of for one, of in zip(task.instances, rows, strict=True)}
            )
        return loss

    def _task(self, chunk: Chunk, batch: Batch, microbatch: int) -> StageTask:
        instances = tuple(
            Instance(sample, index, units)
            for sample, sizes in enumerate(batch.samples[microbatch])
            for index, units in enumerate(sizes[chunk.module])
        )
        shapes = self._hand_offs[chunk.module]
        return StageTask(
            chunk=chunk,
            batch=batch,
            microbatch=microbatch,
            sub_microbatch=0,
            instances=instances,
            output_rows=shapes.output.rows_of(instances),
            result_rows=shapes.handed_on.rows_of(instances),
            training=True,
        )


def _whole(module: str) -> Chunk:
    return Chunk(
        module=module,
        index=0,
        rank=0,
        first_layer=0,
        num_layers=LAYERS[module],
        is_first=True,
        is_last=True,
        is_loss=module == list(LAYERS)[-1],
    )
