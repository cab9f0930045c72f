"""Runs one chunk forward and backward: what is kept in between, how its layers run, gradients of inputs, halves."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

from trainer_agent.compiling import OFFLOAD, RECOMPUTE, STORE
from trainer_agent.errors import HandOffError, StageInterfaceError
from trainer_agent.halves import WeightHalf, input_half
from trainer_agent.holding import SavedTensors
from trainer_agent.offloading import offloaded_alone
from trainer_agent.owning import owned_gradients
from trainer_agent.rows import add_gradients, gather_results
from trainer_agent.saved import storages
from trainer_agent.stages import StageTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import nn

    from trainer_agent.program import CellPlan
    from trainer_agent.stages import Chunk, ChunkModule, HandOff, ModuleHandOffs, Strategy


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kept:
    """What stays from a forward until its backward.

    Parameters
    ----------
    inputs
        What arrived, as leaves of the graph.
    output
        What was made of it.
    saved
        What the graph saved, where the backward is split.
    entered
        On a first chunk that is split and whose inputs need no gradients: the tensors of the first layer's input as
        ``enter`` made them, and as the layers got them. Their gradients are then what the input half ends with.
    """

    inputs: tuple[torch.Tensor, ...]
    output: torch.Tensor
    saved: SavedTensors | None
    entered: list[tuple[torch.Tensor, torch.Tensor]]

    def leaves(self) -> list[torch.Tensor]:
        """Return the leaves whose gradients the input half computes."""
        return [leaf for _, leaf in self.entered] or [leaf for leaf in self.inputs if leaf.requires_grad]


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
    device
        Where the chunk runs.
    strategies
        The user's own ways to run a layer, by name.
    """

    def __init__(
        self,
        *,
        chunk: Chunk,
        module: ChunkModule,
        hand_offs: ModuleHandOffs,
        input_modules: Sequence[str],
        frozen: bool,
        device: torch.device | str = "cpu",
        strategies: Mapping[str, Strategy] | None = None,
    ) -> None:
        self.chunk = chunk
        self.module = module
        self._hand_offs = hand_offs
        self._input_modules = tuple(input_modules)
        self._device = torch.device(device)
        self._strategies = strategies or {}
        self._kept: dict[int, _Kept] = {}
        self._left: dict[int, tuple[WeightHalf, SavedTensors]] = {}
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
            kept = self._run(work, task, inputs)
        self._check(work, kept.output)
        if work.has_backward:
            self._kept[work.cell.sub_microbatch] = kept
        return kept.output.detach()

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
            gradient = self._gradient(work, kept.output, gradients, loss_scale)
            with owned_gradients(self.module.parameters()):
                torch.autograd.backward([kept.output], [gradient])
        return _gradients_of_inputs(work, kept)

    def backward_input(
        self, work: CellPlan, gradients: Sequence[torch.Tensor], *, loss_scale: float
    ) -> list[torch.Tensor | None]:
        """Run the input half of one sub-microbatch; takes and returns what `backward` does.

        What is recomputed or offloaded is brought back first, and stays until the weight half where that needs it. Of a
        frozen module, which has no weight half, it is the whole backward.
        """
        if not work.is_split:
            return self.backward(work, gradients, loss_scale=loss_scale)
        kept = self._kept.pop(work.cell.sub_microbatch)
        saved, left = cast("SavedTensors", kept.saved), WeightHalf()
        if kept.output.requires_grad:
            gradient = self._gradient(work, kept.output, gradients, loss_scale)
            saved.restore()
            with owned_gradients(self.module.parameters()):
                left = input_half(kept.output, gradient, kept.leaves(), saved)
        left.whole += [(made, leaf.grad) for made, leaf in kept.entered if leaf.grad is not None]
        self._left[work.cell.sub_microbatch] = left, saved
        return _gradients_of_inputs(work, kept)

    def backward_weight(self, work: CellPlan) -> None:
        """Run the weight half of one sub-microbatch and let go of all that is left of it."""
        left, saved = self._left.pop(work.cell.sub_microbatch)
        with owned_gradients(self.module.parameters()):
            left.run()
        saved.release()

    def held_bytes(self, work: CellPlan) -> int:
        """Count what is held of one sub-microbatch between its halves, each storage once, parameters not counted."""
        left, saved = self._left[work.cell.sub_microbatch]
        held = storages([*saved.tensors(), *left.tensors()])
        return sum(held.values()) - sum(held.get(own, 0) for own in storages(self.module.parameters()))

    def _gradient(
        self, work: CellPlan, output: torch.Tensor, gradients: Sequence[torch.Tensor], loss_scale: float
    ) -> torch.Tensor:
        return torch.full_like(output, loss_scale) if self.chunk.is_loss else add_gradients(output, work, gradients)

    def _run(self, work: CellPlan, task: StageTask, inputs: tuple[torch.Tensor, ...]) -> _Kept:
        saved = SavedTensors(self._device, self.module.parameters) if work.is_split else None
        entered: list[tuple[torch.Tensor, torch.Tensor]] = []
        with nullcontext() if saved is None else saved.holding():
            if self.chunk.is_first:
                x = self.module.enter(task, gather_results(self._input_modules, work.inputs, inputs))
                if saved and not any(leaf.requires_grad for leaf in inputs):
                    x, entered = _cut_off(x)
            else:
                (x,) = inputs
            for layer, way in zip(self.module.layers, work.ways, strict=True):
                x = self._layer(layer, way if work.has_backward else STORE, x, task, saved)
            if self.chunk.is_loss:
                x = self.module.loss(x, task)
            elif self.chunk.is_last:
                x = self.module.leave(x, task)
        return _Kept(inputs=inputs, output=x, saved=saved, entered=entered)

    def _layer(
        self, layer: nn.Module, way: str, x: torch.Tensor, task: StageTask, saved: SavedTensors | None
    ) -> torch.Tensor:
        """Run a layer in one of the ways."""
        context: AbstractContextManager[object] = nullcontext()
        if way == RECOMPUTE:
            if saved is None:
                recomputed = checkpoint(layer, x, task, use_reentrant=False, preserve_rng_state=True)
                return cast("torch.Tensor", recomputed)
            return saved.recomputed(layer, x, task)
        if way == OFFLOAD:
            context = offloaded_alone(self.module.parameters()) if saved is None else saved.offloaded()
        elif way != STORE:
            context = self._strategies[way]()
        with context:
            return cast("torch.Tensor", layer(x, task))

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


def _cut_off(x: torch.Tensor) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
    """Return what ``enter`` made, which may be several tensors, with leaves in their place, and both of each."""
    leaves: dict[torch.Tensor, torch.Tensor] = {}

    def leaf(made: object) -> object:
        if not isinstance(made, torch.Tensor) or not made.requires_grad:
            return made
        return leaves.setdefault(made, made.detach().requires_grad_())

    return cast("torch.Tensor", tree_map(leaf, x)), list(leaves.items())


def _gradients_of_inputs(work: CellPlan, kept: _Kept) -> list[torch.Tensor | None]:
    """For each input edge its gradient: zeros where it was not used, None where none is wanted."""
    return [
        (torch.zeros_like(leaf) if leaf.grad is None else leaf.grad) if edge.has_gradient else None
        for edge, leaf in zip(work.inputs, kept.inputs, strict=True)
    ]
