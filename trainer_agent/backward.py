"""Runs one chunk forward and backward: what is kept in between, recompute, frozen modules, gradients of inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.utils.checkpoint import checkpoint

from trainer_agent.compiling import RECOMPUTE
from trainer_agent.errors import HandOffError, StageInterfaceError
from trainer_agent.rows import add_gradients, gather_results
from trainer_agent.stages import StageTask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_agent.program import CellPlan
    from trainer_agent.stages import Chunk, ChunkModule, HandOff, ModuleHandOffs


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kept:
    """What stays from a forward until its backward."""

    inputs: tuple[torch.Tensor, ...]
    output: torch.Tensor


class StageRunner:
    """One chunk of this rank, with what its sub-microbatches in flight keep.

    Parameters
    ----------
    chunk
        The chunk.
    module
        The user's module for it.
    hand_offs
        Of the chunk's module.
    input_modules
        Names of the modules that the chunk's module consumes.
    frozen
        Whether the module is frozen: none of its parameters gets a gradient.
    """

    def __init__(
        self,
        *,
        chunk: Chunk,
        module: ChunkModule,
        hand_offs: ModuleHandOffs,
        input_modules: Sequence[str],
        frozen: bool,
    ) -> None:
        self.chunk = chunk
        self.module = module
        self._hand_offs = hand_offs
        self._input_modules = tuple(input_modules)
        self._kept: dict[int, _Kept] = {}
        if frozen:
            module.requires_grad_(False)

    def forward(
        self, work: CellPlan, arrived: Sequence[torch.Tensor], batch: object, *, training: bool
    ) -> torch.Tensor:
        """Run the forward of one sub-microbatch.

        Parameters
        ----------
        work
            The cell; keeps activations where it has a backward, runs without gradients where it has none.
        arrived
            The tensor of each of its input edges, in their order.
        batch
            The user's batch.
        training
            False in evaluation.

        Returns
        -------
        Tensor
            The output, detached: a scalar on the loss chunk.

        Raises
        ------
        HandOffError
            The output is not what the module's hand-off declares.
        """
        inputs = tuple(
            tensor.detach().requires_grad_(edge.has_gradient) for edge, tensor in zip(work.inputs, arrived, strict=True)
        )
        task = StageTask(
            chunk=self.chunk,
            batch=batch,
            microbatch=work.microbatch,
            sub_microbatch=work.cell.sub_microbatch,
            instances=work.instances,
            output_rows=work.output_rows,
            result_rows=work.result_rows,
            training=training,
        )
        with torch.set_grad_enabled(work.has_backward):
            output = self._run(work, task, inputs)
        self._check(work, output)
        if work.has_backward:
            self._kept[work.cell.sub_microbatch] = _Kept(inputs=inputs, output=output)
        return output.detach()

    def backward(
        self, work: CellPlan, gradients: Sequence[torch.Tensor], *, loss_scale: float
    ) -> list[torch.Tensor | None]:
        """Run the whole backward of one sub-microbatch and let go of what it kept.

        Parameters
        ----------
        work
            The cell.
        gradients
            The gradient of each of its output edges, in their order.
        loss_scale
            What the summed loss is multiplied with; used on the loss chunk.

        Returns
        -------
        list of Tensor or None
            For each input edge the gradient of what came along it: zeros where it was not used, None where none is
            wanted.
        """
        kept = self._kept.pop(work.cell.sub_microbatch)
        if kept.output.requires_grad:
            if self.chunk.is_loss:
                gradient = torch.full_like(kept.output, loss_scale)
            else:
                gradient = add_gradients(kept.output, work, gradients)
            torch.autograd.backward([kept.output], [gradient])
        found: list[torch.Tensor | None] = []
        for edge, leaf in zip(work.inputs, kept.inputs, strict=True):
            found.append((torch.zeros_like(leaf) if leaf.grad is None else leaf.grad) if edge.has_gradient else None)
        return found

    def _run(self, work: CellPlan, task: StageTask, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        if self.chunk.is_first:
            x = self.module.enter(task, gather_results(self._input_modules, work.inputs, inputs))
        else:
            (x,) = inputs
        for layer, way in zip(self.module.layers, work.ways, strict=True):
            if way == RECOMPUTE and work.has_backward:
                x = checkpoint(layer, x, task, use_reentrant=False, preserve_rng_state=True)
            else:
                x = layer(x, task)
        if self.chunk.is_loss:
            return self.module.loss(x, task)
        return self.module.leave(x, task) if self.chunk.is_last else x

    def _lost_its_gradient(self, work: CellPlan, loss: torch.Tensor) -> bool:
        """Whether a loss that depends on something trainable, of this chunk or before it, hides that."""
        if loss.requires_grad or not work.has_backward:
            return False
        # A frozen module may ignore what the trainable ones before it hand on: only enter knows.
        depends = not self.chunk.is_first or any(parameter.requires_grad for parameter in self.module.parameters())
        return depends and bool(loss != 0)

    def _check(self, work: CellPlan, output: object) -> None:
        """Check that the output is what the others expect."""
        if not isinstance(output, torch.Tensor):
            raise StageInterfaceError(f"{self.chunk}: returned a {type(output).__name__}; must be a Tensor")
        if self.chunk.is_loss:
            if output.dim() or not output.is_floating_point():
                raise StageInterfaceError(
                    f"{self.chunk}: loss returned {tuple(output.shape)} of {output.dtype}; must be a floating scalar"
                )
            if self._lost_its_gradient(work, output):
                raise StageInterfaceError(
                    f"{self.chunk}: loss returned {float(output)} without a gradient, so nothing would train; return "
                    "it undetached, and not from under torch.no_grad (a constant 0, where nothing counts, is fine)"
                )
            return
        last, hand_offs = self.chunk.is_last, self._hand_offs
        declared: HandOff = hand_offs.handed_on if last else hand_offs.output
        shape = declared.shape(sum(work.result_rows if last else work.output_rows))
        if tuple(output.shape) != shape or output.dtype != declared.dtype:
            raise HandOffError(
                rank=self.chunk.rank,
                action=f"{'result' if last else 'output'} of {work.cell}",
                expected=f"{list(shape)} of {declared.dtype}",
                found=f"{list(output.shape)} of {output.dtype}",
            )
