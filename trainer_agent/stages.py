"""The interface between the executor and a user's own ``torch.nn`` modules.

A model is a few *modules* (a vision encoder, a language backbone), each a chain of layers that the planner cuts into
*chunks*. The user hands the executor three things:

``build_chunk(chunk) -> ChunkModule``
    Builds the layers of one chunk, and whatever parameters stand around them: embeddings on the module's first
    chunk, heads on its last.
``hand_offs: Mapping[str, ModuleHandOffs]``
    For each module by name, the shape of what crosses between its chunks (``output``) and of what its consumers get
    (``result``). Every shape follows from the sizes of the instances, so a receiver knows it from the plan alone.
``loss_weight(batch) -> float``
    What the summed loss of a batch is divided by, over all microbatches of this replica; the number of target tokens,
    say. The executor adds it up over the replicas before the first backward.

Nothing here knows vision or language: an instance has a size in *units* (patches, tokens, frames), and what that
means is decided by ``enter``, the layers, ``leave`` and ``loss``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import nn

from trainer_agent.errors import StageInterfaceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Consecutive layers of one module on one rank: what ``build_chunk`` builds.

    Parameters
    ----------
    module
        The module's name in the job spec.
    index
        Position among the module's chunks, from 0.
    rank
        Pipeline rank that holds it.
    first_layer, num_layers
        Its layers, counted through the whole module.
    is_first, is_last
        Whether it starts (``enter``) or ends (``leave``) its module.
    is_loss
        Whether it ends the last module: ``loss`` is called instead of ``leave``.
    """

    module: str
    index: int
    rank: int
    first_layer: int
    num_layers: int
    is_first: bool
    is_last: bool
    is_loss: bool

    def __str__(self) -> str:
        """Name it as errors do: ``language.0 (layers 0..3)``."""
        return f"{self.module}.{self.index} (layers {self.first_layer}..{self.first_layer + self.num_layers - 1})"


@dataclass(frozen=True, slots=True)
class Instance:
    """One image, clip or text of a microbatch: number ``index`` of its sample, in its module, with its size."""

    sample: int
    index: int
    units: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StageTask:
    """What one chunk works on at a time: the instances of one sub-microbatch.

    Parameters
    ----------
    chunk
        The chunk that works.
    batch
        The user's own batch, as given to ``Executor.step``.
    microbatch
        Index of the microbatch that the instances belong to.
    sub_microbatch
        Id of the sub-microbatch within the plan. Differs from plan to plan: never key lasting state by it.
    instances
        What is processed together, in the order of the tensor's rows.
    output_rows, result_rows
        For each instance, its number of rows in the module's ``output`` and in its ``result``; ``x.split(output_rows)``
        takes a tensor apart.
    training
        False in evaluation (``Batch.forward_only``).
    memo
        For constants that the layers of the chunk share on this task (an attention mask, positions); starts empty. Must
        not hold tensors that need gradients.
    """

    chunk: Chunk
    batch: object
    microbatch: int
    sub_microbatch: int
    instances: tuple[Instance, ...]
    output_rows: tuple[int, ...]
    result_rows: tuple[int, ...]
    training: bool
    memo: dict[str, object] = field(default_factory=dict, compare=False)

    @property
    def samples(self) -> tuple[int, ...]:
        """Indexes of the samples that have an instance here, ascending."""
        return tuple(sorted({instance.sample for instance in self.instances}))


class GatheredResults(Mapping[tuple[int, int], torch.Tensor]):
    """One upstream module's results for the samples of a sub-microbatch, by (sample, index), in ascending order.

    Holds all results of every sample that has an instance in the consuming sub-microbatch, whichever sub-microbatches
    made them; empty where these samples have none (a text without images). Each value is ``[rows, *features]`` as the
    upstream module's ``result`` hand-off says. The order never depends on the plan.
    """

    def __init__(self, rows: Mapping[tuple[int, int], torch.Tensor]) -> None:
        self._rows = {key: rows[key] for key in sorted(rows)}

    def __getitem__(self, key: tuple[int, int]) -> torch.Tensor:
        """Return the rows of instance ``key[1]`` of sample ``key[0]``."""
        return self._rows[key]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Iterate over (sample, index), ascending."""
        return iter(self._rows)

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self._rows)

    def of_sample(self, sample: int) -> list[torch.Tensor]:
        """Return the results of one sample in the order of its instances; empty where it has none."""
        return [rows for (owner, _), rows in self._rows.items() if owner == sample]


Results: TypeAlias = Mapping[str, GatheredResults]


class ChunkModule(nn.Module):
    """Base class of what ``build_chunk`` returns. Subclasses set ``layers`` and override what their chunks need.

    ``layers`` holds exactly ``chunk.num_layers`` modules, each called as ``layer(x, task)``; what a layer takes and
    returns is its own matter, except that a tensor that crosses to another chunk is what the module's ``output``
    hand-off declares. Parameters outside ``layers`` (embeddings used by ``enter``, heads used by ``leave`` or ``loss``)
    are ordinary attributes. The layers alone can be recomputed or offloaded; ``enter``, ``leave`` and ``loss`` run
    once.

    Nothing may write into a tensor that it was handed (``x += y`` on the input of a chunk): others may still need it.
    Torch or the executor raises where it happens; ``x = x + y`` is right.
    """

    layers: nn.ModuleList

    def enter(self, task: StageTask, results: Results) -> torch.Tensor:
        """Make the input of the module's first layer. Called on the first chunk of a module.

        Parameters
        ----------
        task
            Which instances of which microbatch; ``task.batch`` is the user's batch.
        results
            For each input module of this one, by name, the results of the samples in ``task``. Always has every
            input module, with nothing in it where the samples have no instance of it. Need not all be used.
        """
        raise NotImplementedError(f"{type(self).__name__} starts a module and must define enter(task, results)")

    def leave(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        """Turn the last layer's output into the module's ``result``. Called on the last chunk; hands on ``x`` as it is.

        Rows of an instance must stay together and in the order of ``task.instances``.
        """
        return x

    def loss(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        """Sum the loss over the instances of ``task``: a scalar, not divided by anything. Called on the loss chunk."""
        raise NotImplementedError(f"{type(self).__name__} ends the last module and must define loss(x, task)")


Strategy: TypeAlias = Callable[[], AbstractContextManager[object]]
"""A way of the user's own to run a layer: makes the context that the layer's forward runs in."""
BuildChunk: TypeAlias = Callable[[Chunk], ChunkModule]
LossWeightOf: TypeAlias = Callable[[object], float]


def _same(units: int) -> int:
    return units


@dataclass(frozen=True, kw_only=True, slots=True)
class HandOff:
    """The tensor ``[rows, *features]`` that crosses a boundary, as a function of the instances' units.

    Parameters
    ----------
    features
        All dimensions but the first.
    dtype
        Its element type.
    rows
        Rows of one instance of so many units; one row for each unit by default. An instance's rows are contiguous, and
        instances stand in the order of their sub-microbatch.
    """

    features: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    rows: Callable[[int], int] = _same

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.features):
            raise ValueError(f"HandOff.features: {self.features}; every dimension must be above 0")

    def rows_of(self, instances: Sequence[Instance]) -> tuple[int, ...]:
        """Return the number of rows of each instance."""
        rows = tuple(self.rows(instance.units) for instance in instances)
        for instance, count in zip(instances, rows, strict=True):
            if not isinstance(count, int) or count < 0:
                raise StageInterfaceError(f"HandOff.rows({instance.units}) is {count!r}; must be a whole number from 0")
        return rows

    def shape(self, rows: int) -> tuple[int, ...]:
        """Return the shape of a tensor of so many rows."""
        return (rows, *self.features)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleHandOffs:
    """What crosses inside a module and what leaves it.

    Parameters
    ----------
    output
        Between two chunks of the module.
    result
        From the module's last chunk to its consumers; as ``output`` where not given. The last module has none.
    """

    output: HandOff
    result: HandOff | None = None

    @property
    def handed_on(self) -> HandOff:
        """The hand-off to consumers."""
        return self.result or self.output


def build_and_check(build_chunk: BuildChunk, chunk: Chunk) -> ChunkModule:
    """Build one chunk and check that it keeps the interface.

    Raises
    ------
    StageInterfaceError
        It is no ChunkModule, has another number of layers, or lacks ``enter`` or ``loss`` where they are needed.
    """
    module: object = build_chunk(chunk)
    if not isinstance(module, ChunkModule):
        raise StageInterfaceError(f"build_chunk({chunk}) returned a {type(module).__name__}; must be a ChunkModule")
    layers: object = getattr(module, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise StageInterfaceError(
            f"build_chunk({chunk}): layers is a {type(layers).__name__}; must be an nn.ModuleList"
        )
    if len(layers) != chunk.num_layers:
        raise StageInterfaceError(f"build_chunk({chunk}): {len(layers)} layers; must be {chunk.num_layers}")
    if chunk.is_first and type(module).enter is ChunkModule.enter:
        raise StageInterfaceError(
            f"build_chunk({chunk}): {type(module).__name__} does not define enter, but starts a module"
        )
    if chunk.is_loss and type(module).loss is ChunkModule.loss:
        raise StageInterfaceError(
            f"build_chunk({chunk}): {type(module).__name__} does not define loss, but ends the last module"
        )
    return module
