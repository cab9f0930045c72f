"""A small vision-language model in chunks: a ViT, and a causal transformer that reads its results among words.

The classes below are all that the executor asks of a model: `ChunkModule` with ``enter``, ``layers``, ``leave`` and
``loss``. A layer works on the rows of several instances at once and lets each attend to itself alone.
"""

from __future__ import annotations

import math
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from examples.vlm.documents import IMAGE, MERGE, NO_TARGET, PATCH, VOCABULARY, Document, DocumentBatch, rows_of_patches
from trainer_agent import Chunk, ChunkModule, HandOff, ModuleHandOffs, Results, StageTask

if TYPE_CHECKING:
    from collections.abc import Iterator


PLACES = 8  # side of the grid of learned places in an image


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """Size of a stack of layers; ``width`` must be a multiple of ``heads``, and of 4."""

    layers: int
    width: int
    heads: int


@dataclass(frozen=True, kw_only=True)
class VlmConfig:
    """Size of the model, and the seed of its first weights."""

    vision: Transformer = Transformer(layers=4, width=192, heads=6)
    language: Transformer = Transformer(layers=4, width=192, heads=6)
    seed: int = 0

    def hand_offs(self) -> dict[str, ModuleHandOffs]:
        """Shapes of what crosses between chunks, and from the ViT to the language model."""
        return {
            "vision": ModuleHandOffs(
                output=HandOff(features=(self.vision.width,)),
                result=HandOff(features=(self.language.width,), rows=rows_of_patches),
            ),
            "language": ModuleHandOffs(output=HandOff(features=(self.language.width,))),
        }

    def build_chunk(self, chunk: Chunk) -> ChunkModule:
        """Build some layers of one of the two modules: what the executor gets."""
        return VisionChunk(self, chunk) if chunk.module == "vision" else LanguageChunk(self, chunk)


class Layer(nn.Module):
    """A transformer layer over the rows of several instances, ``[rows, width]``."""

    def __init__(self, size: Transformer, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = size.heads, causal
        self.norm_1, self.norm_2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.query_key_value = nn.Linear(size.width, 3 * size.width)
        self.out = nn.Linear(size.width, size.width)
        self.up, self.down = nn.Linear(size.width, 4 * size.width), nn.Linear(4 * size.width, size.width)

    def forward(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        """Let every instance of the task attend to itself."""
        rows, width = x.shape
        qkv = self.query_key_value(self.norm_1(x)).view(rows, 3, self.heads, width // self.heads)
        attended = []
        for one in torch.split(qkv, list(task.output_rows)):
            query, key, value = one.permute(1, 2, 0, 3).unsqueeze(1)
            attended.append(functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal))
        x = x + self.out(torch.cat(attended, dim=2)[0].transpose(0, 1).reshape(rows, width))
        y: torch.Tensor = x + self.down(functional.gelu(self.up(self.norm_2(x))))
        return y


class VisionChunk(ChunkModule):
    """Layers of the ViT; patches come in, rows of the language model's width go out."""

    def __init__(self, config: VlmConfig, chunk: Chunk) -> None:
        super().__init__()
        size, seed = config.vision, f"{config.seed}/vision"
        self.layers = _layers(size, chunk, seed, causal=False)
        with _drawn_from(f"{seed}/around"):
            embed, merge = nn.Linear(PATCH**2, size.width), nn.Linear(MERGE**2 * size.width, config.language.width)
            places = nn.Parameter(0.5 * torch.randn(size.width, PLACES, PLACES))
            whole = nn.Linear(4 * config.language.width, config.language.width)
        if chunk.is_first:
            self.embed, self.places = embed, places
        if chunk.is_last:
            self.norm, self.merge, self.whole = nn.LayerNorm(size.width), merge, whole

    def enter(self, task: StageTask, results: Results) -> torch.Tensor:
        """Embed the patches of the task's images, each with its place in the image."""
        images = [_documents(task)[instance.sample].images[instance.index] for instance in task.instances]
        patches = torch.cat([_patches(image) for image in images])
        x: torch.Tensor = self.embed(patches)
        return x + torch.cat([self._places(len(image) // PATCH) for image in images])

    def leave(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        """Merge squares of patches, which stand together, and add to each row what the image is as a whole."""
        rows: torch.Tensor = self.merge(self.norm(x).view(-1, self.merge.in_features))
        images = torch.split(rows, list(task.result_rows))
        return rows + torch.cat([self.whole(_quarters(image)).expand_as(image) for image in images])

    def _places(self, side: int) -> torch.Tensor:
        """Where each patch stands in an image of ``side * side`` patches: learned for one size, scaled to all."""
        grid = functional.interpolate(self.places[None], size=(side, side), mode="bilinear")[0]
        return _squares(grid.permute(1, 2, 0))


class LanguageChunk(ChunkModule):
    """Layers of the language model; documents come in, their summed cross-entropy goes out."""

    def __init__(self, config: VlmConfig, chunk: Chunk) -> None:
        super().__init__()
        size, seed = config.language, f"{config.seed}/language"
        self.layers = _layers(size, chunk, seed, causal=True)
        with _drawn_from(f"{seed}/around"):
            embed, head = nn.Embedding(len(VOCABULARY), size.width), nn.Linear(size.width, len(VOCABULARY))
        if chunk.is_first:
            self.embed = embed
        if chunk.is_last:
            self.norm, self.head = nn.LayerNorm(size.width), head

    def enter(self, task: StageTask, results: Results) -> torch.Tensor:
        """Put words and the rows of images into one sequence for each document."""
        documents = [_documents(task)[instance.sample] for instance in task.instances]
        tokens = torch.cat([document.tokens for document in documents])
        x: torch.Tensor = self.embed(tokens.clamp(min=0))
        seen = [rows for instance in task.instances for rows in results["vision"].of_sample(instance.sample)]
        if seen:
            x = x.index_copy(0, (tokens == IMAGE).nonzero()[:, 0], torch.cat(seen))
        return x + torch.cat([_waves(torch.arange(len(one.tokens)), x.shape[1]) for one in documents])

    def loss(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        """Sum the cross-entropy of all words that are predicted."""
        targets = torch.cat([_documents(task)[instance.sample].targets for instance in task.instances])
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits, targets, ignore_index=NO_TARGET, reduction="sum")


def _documents(task: StageTask) -> tuple[Document, ...]:
    batch = task.batch
    if not isinstance(batch, DocumentBatch):
        raise TypeError(f"batch: a {type(batch).__name__}; must be a DocumentBatch")
    return batch.microbatches[task.microbatch]


def _layers(size: Transformer, chunk: Chunk, seed: str, *, causal: bool) -> nn.ModuleList:
    """Build a chunk's layers; each draws its weights from its own number, whatever the partition."""
    layers = nn.ModuleList()
    for layer in range(chunk.first_layer, chunk.first_layer + chunk.num_layers):
        with _drawn_from(f"{seed}/{layer}"):
            layers.append(Layer(size, causal=causal))
    return layers


@contextmanager
def _drawn_from(name: str) -> Iterator[None]:
    """Draw random numbers from a seed of this name, and leave all others as they were."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(zlib.crc32(name.encode()))
        yield


def _squares(grid: torch.Tensor) -> torch.Tensor:
    """Order the rows of a grid ``[side, side, ...]`` square of `MERGE` x `MERGE` by square: ``[side * side, ...]``."""
    side = len(grid) // MERGE
    return grid.reshape(side, MERGE, side, MERGE, *grid.shape[2:]).transpose(1, 2).flatten(0, 3)


def _patches(image: torch.Tensor) -> torch.Tensor:
    """Cut an image ``[side, side]`` into patches, ``[patches, PATCH * PATCH]``, square by square."""
    side = len(image) // PATCH
    return _squares(image.view(side, PATCH, side, PATCH).transpose(1, 2)).flatten(1)


def _quarters(rows: torch.Tensor) -> torch.Tensor:
    """Average the rows of an image over each of its quarters, ``[4 * width]``: what it is as a whole."""
    side = math.isqrt(len(rows))
    return functional.adaptive_avg_pool2d(rows.view(side, side, -1).permute(2, 0, 1), 2).flatten()


def _waves(positions: torch.Tensor, width: int) -> torch.Tensor:
    """Sine and cosine of positions at many frequencies, ``[positions, width]`` (Vaswani et al. 2017, section 3.5)."""
    frequencies = torch.exp(torch.arange(width // 2) * (-math.log(10_000) / (width // 2)))
    angles = positions[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)
