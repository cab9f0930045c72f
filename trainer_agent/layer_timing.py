"""Times one layer of a user's module: forward, both gradients, what it keeps, and the same in leaner ways."""

from __future__ import annotations

import statistics
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch.utils.checkpoint import checkpoint

from trainer_agent.compiling import OFFLOAD, RECOMPUTE, STORE
from trainer_agent.errors import ProfileError
from trainer_agent.half_timing import WARM_UP, HalfTimer
from trainer_agent.offloading import offloaded_alone
from trainer_agent.saved import storages
from trainer_agent.stages import GatheredResults, Instance, StageTask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainer_agent.stages import Chunk, ChunkModule, ModuleHandOffs


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerTimes:
    """What one layer takes in one way for instances of certain sizes, in microseconds and bytes.

    Parameters
    ----------
    forward_us, backward_input_us, backward_weight_us
        Medians. Where backwards are not split, the weight half is what a whole one takes beyond the input half.
    activation_bytes
        What the forward keeps for the backward, parameters not counted; of a lean way its input.
    split_activation_bytes
        The most that is held from the start of the input half to the end of the weight half.
    """

    forward_us: float
    backward_input_us: float = 0.0
    backward_weight_us: float = 0.0
    activation_bytes: int = 0
    split_activation_bytes: int = 0


class LayerTimer:
    """Times the only layer of a chunk.

    Parameters
    ----------
    module
        A chunk of one layer.
    chunk
        What it is. Where it starts its module, ``enter`` belongs to the layer; where it ends it, ``leave`` or ``loss``
        does; both only where there is a batch to call them with.
    hand_offs
        Of the chunk's module: the layer's input is drawn at random in the shape of ``output``.
    inputs
        Names of the modules that the module consumes.
    make_batch
        Called with a module's name and the sizes of some instances: a batch whose microbatch 0 has one sample with
        one such instance for each size.
    trains
        Whether the module has a backward.
    frozen
        Whether it has no weights to train.
    split
        Whether to run backwards as two halves.
    device
        Where to time.
    repeats
        How many times each is measured.
    """

    def __init__(
        self,
        *,
        module: ChunkModule,
        chunk: Chunk,
        hand_offs: ModuleHandOffs,
        inputs: Sequence[str],
        make_batch: Callable[[str, Sequence[int]], object] | None,
        trains: bool,
        frozen: bool,
        split: bool,
        device: torch.device,
        repeats: int,
    ) -> None:
        self._module, self._chunk, self._hand_offs = module.to(device), chunk, hand_offs
        self._inputs, self._make_batch, self._trains = tuple(inputs), make_batch, trains
        self._device, self._repeats = device, repeats
        self._parameters: list[torch.Tensor] = [
            parameter for parameter in module.parameters() if parameter.requires_grad
        ]
        self._halves = (
            HalfTimer(
                module=self._module,
                chunk=chunk,
                hand_offs=hand_offs,
                inputs=inputs,
                alone=make_batch is None,
                frozen=frozen,
                device=device,
                repeats=repeats,
            )
            if split
            else None
        )

    def measure(self, sizes: Sequence[int], ways: Sequence[str] = (STORE,)) -> dict[str, LayerTimes]:
        """Time the layer for instances of these sizes, processed together.

        Parameters
        ----------
        sizes
            Units of each instance.
        ways
            Strategies to time it in; "store" is the first.

        Raises
        ------
        ProfileError
            The layer cannot be run alone on a random input.
        """
        task, x = self._task(sizes), self._input(sizes)
        try:
            with torch.set_grad_enabled(self._trains):
                y = self._run(x, task, STORE)
        except (RuntimeError, ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
            raise ProfileError(
                f"layer {self._chunk.first_layer} of {self._chunk.module} does not run on sizes {list(sizes)} alone: "
                f"{error}" + ("" if self._make_batch else "; does it need make_batch?")
            ) from error
        if not isinstance(y, torch.Tensor):
            raise ProfileError(
                f"layer {self._chunk.first_layer} of {self._chunk.module} returned a {type(y).__name__}; only layers "
                "that take and return a Tensor can be measured: state the costs of others in the job"
            )
        if not self._trains or not y.requires_grad:
            alike = LayerTimes(forward_us=self._median_us(lambda: self._run(x, task, STORE)))
            return dict.fromkeys(ways, alike)
        found = {STORE: self._stored(task, x, y)}
        for way in ways[1:]:
            found[way] = self._lean(task, x, way, found[STORE])
        return found

    def _stored(self, task: StageTask, x: torch.Tensor, y: torch.Tensor) -> LayerTimes:
        kept = self._kept_bytes(task, x)
        forward = self._median_us(lambda: self._run(x, task, STORE))
        if self._halves is not None:
            return self._split(task, x, STORE, forward, kept_bytes=kept, most_bytes=kept)
        inputs = [x] if self._reaches(y, x) else []
        to_input = self._backward_us(task, x, inputs, STORE) if inputs else 0.0
        whole = self._backward_us(task, x, inputs + self._parameters, STORE)
        return LayerTimes(
            forward_us=forward,
            backward_input_us=to_input,
            backward_weight_us=max(0.0, whole - to_input) if self._parameters else 0.0,
            activation_bytes=kept,
            split_activation_bytes=kept,
        )

    def _lean(self, task: StageTask, x: torch.Tensor, way: str, stored: LayerTimes) -> LayerTimes:
        kept, most = x.untyped_storage().nbytes(), stored.activation_bytes
        forward = stored.forward_us if way == RECOMPUTE else self._median_us(lambda: self._run(x, task, way))
        if self._halves is not None:
            return self._split(task, x, way, forward, kept_bytes=kept, most_bytes=most)
        inputs = [x] if stored.backward_input_us else []
        whole = self._backward_us(task, x, inputs + self._parameters, way)
        return LayerTimes(
            forward_us=forward,
            backward_input_us=max(stored.backward_input_us, whole - stored.backward_weight_us),
            backward_weight_us=stored.backward_weight_us,
            activation_bytes=kept,
            split_activation_bytes=most,
        )

    def _split(
        self, task: StageTask, x: torch.Tensor, way: str, forward_us: float, *, kept_bytes: int, most_bytes: int
    ) -> LayerTimes:
        """Time the halves; at the start of the input half all that a stored layer keeps is held."""
        halves = cast("HalfTimer", self._halves).measure(task, x, way)
        return LayerTimes(
            forward_us=forward_us,
            backward_input_us=halves.input_us,
            backward_weight_us=halves.weight_us,
            activation_bytes=kept_bytes,
            split_activation_bytes=max(most_bytes, halves.between_bytes),
        )

    def _task(self, sizes: Sequence[int]) -> StageTask:
        instances = tuple(Instance(sample, 0, units) for sample, units in enumerate(sizes))
        return StageTask(
            chunk=self._chunk,
            batch=self._make_batch(self._chunk.module, sizes) if self._make_batch else None,
            microbatch=0,
            sub_microbatch=0,
            instances=instances,
            output_rows=self._hand_offs.output.rows_of(instances),
            result_rows=self._hand_offs.handed_on.rows_of(instances),
            training=True,
        )

    def _input(self, sizes: Sequence[int]) -> torch.Tensor:
        """Draw the layer's input, always of the same values."""
        output = self._hand_offs.output
        rows = sum(output.rows(units) for units in sizes)
        generator = torch.Generator().manual_seed(rows)
        drawn = torch.randn(output.shape(rows), generator=generator).to(self._device, output.dtype)
        return drawn.requires_grad_(self._trains)

    def _run(self, x: torch.Tensor, task: StageTask, way: str) -> torch.Tensor:
        module, chunk = self._module, self._chunk
        if chunk.is_first and self._make_batch:
            x = module.enter(task, {name: GatheredResults({}) for name in self._inputs})
        (layer,) = module.layers
        if way == RECOMPUTE:
            y = checkpoint(layer, x, task, use_reentrant=False)
        else:
            with offloaded_alone(module.parameters()) if way == OFFLOAD else nullcontext():
                y = layer(x, task)
        if self._make_batch and chunk.is_loss:
            return module.loss(y, task)
        return module.leave(y, task) if self._make_batch and chunk.is_last else y

    def _reaches(self, y: torch.Tensor, x: torch.Tensor) -> bool:
        (found,) = torch.autograd.grad(y, [x], torch.ones_like(y), allow_unused=True)
        return found is not None

    def _backward_us(self, task: StageTask, x: torch.Tensor, wanted: Sequence[torch.Tensor], way: str) -> float:
        """Median time of the gradients of some tensors, each after a forward of its own."""
        if not wanted:
            return 0.0
        y = [self._run(x, task, way)]

        def backward() -> None:
            torch.autograd.grad(y, list(wanted), [torch.ones_like(y[0])], allow_unused=True)

        def forward() -> None:
            y[0] = self._run(x, task, way)

        return self._median_us(backward, before=forward)

    def _median_us(self, call: Callable[[], object], before: Callable[[], object] | None = None) -> float:
        taken = []
        with torch.set_grad_enabled(self._trains):
            for _ in range(WARM_UP + self._repeats):
                if before is not None:
                    before()
                self._synchronize()
                start = time.perf_counter_ns()
                call()
                self._synchronize()
                taken.append((time.perf_counter_ns() - start) / 1000)
        return max(statistics.median(taken[WARM_UP:]), 0.001)

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _kept_bytes(self, task: StageTask, x: torch.Tensor) -> int:
        """Bytes that the graph of a forward holds, each storage once, parameters not counted."""
        kept: list[torch.Tensor] = []

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            kept.append(tensor.detach())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            self._run(x, task, STORE)
        own = storages(self._module.parameters())
        return sum(size for storage, size in storages(kept).items() if storage not in own)
