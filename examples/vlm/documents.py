"""Documents of text and images: real handwritten digits, scaled to many sizes, and a text that names them.

A document tells a piece of a short story. Between its sentences stand images of digits, each with a caption that spells
its digit out: only who looks at the images can know that word. The number of images varies from none to a dozen, with a
heavy tail, and so do their sizes; microbatches are packed to about the same number of tokens, as loaders do, so the
work of the language model hardly varies between them and that of the vision encoder very much.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from dip.planner.v1 import planner_pb2 as pb
from torch.nn import functional
from torch.utils.data import Dataset

if TYPE_CHECKING:
    from collections.abc import Sequence

PATCH = 8  # pixels of a patch's side
MERGE = 2  # patches of the side of the square that becomes one row of the language model's input
SIZES = (32, 48, 64, 80, 96)  # pixels of an image's side: 16 to 144 patches, 4 to 36 rows
MAX_IMAGES = 12
LEAST_PATCHES = 192  # of a document's images together: actions that take no time would show nothing
TEXT_ONLY_SHARE = 0.4
TOKENS_OF_A_MICROBATCH = 320
MEAN_GREY, GREY_SPREAD = 0.3, 0.38  # of the digits, in 0 to 1: images are brought to mean 0 and spread 1
IMAGE = -1  # stands in `Document.tokens` for a row that an image gives
NO_TARGET = -100

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
STORY = """
the clerk opens the old ledger by the window .
every page holds a row of small figures in brown ink .
he reads them aloud and his sister writes them down .
the rain has washed out some of the columns .
where a figure is lost they leave an empty square .
at noon the lamp is lit and they begin again .
nobody remembers who kept these books before the flood .
the last page is signed with a single letter .
in the evening they count the sheets and tie them with a string .
tomorrow another box will come from the archive .
"""
SENTENCES = tuple(tuple(line.split()) for line in STORY.strip().splitlines())
CAPTIONS = ("{} stands here .", "{} is this figure .", "{} it reads .")
VOCABULARY = tuple(dict.fromkeys(["<begin>", *DIGITS, *STORY.split(), *" ".join(CAPTIONS).replace("{}", "").split()]))
_NUMBER = {word: number for number, word in enumerate(VOCABULARY)}


def rows_of_patches(patches: int) -> int:
    """Rows of the language model's input that an image of so many patches becomes."""
    return patches // MERGE**2


@dataclass(frozen=True, kw_only=True)
class Document:
    """One sample.

    Parameters
    ----------
    images
        Each ``[side, side]``, of mean 0 and spread 1 over all images.
    tokens
        What the language model reads, ``[tokens]``: numbers of words, and `IMAGE` for each row that an image gives.
    """

    images: tuple[torch.Tensor, ...]
    tokens: torch.Tensor

    @cached_property
    def patches(self) -> tuple[int, ...]:
        """Patches of each image."""
        return tuple((len(image) // PATCH) ** 2 for image in self.images)

    @cached_property
    def targets(self) -> torch.Tensor:
        """The word that follows each token, ``[tokens]``; `NO_TARGET` where none does."""
        following = torch.cat([self.tokens[1:], torch.tensor([IMAGE])])
        return torch.where(following == IMAGE, NO_TARGET, following)

    @property
    def num_targets(self) -> int:
        """Words that are predicted: all but the first, with images and without."""
        return int((self.tokens != IMAGE).sum()) - 1

    def without_images(self) -> Document:
        """Return the text alone."""
        return Document(images=(), tokens=self.tokens[self.tokens != IMAGE])


@dataclass(frozen=True, kw_only=True)
class DocumentBatch:
    """What one iteration trains on: microbatches of documents."""

    microbatches: tuple[tuple[Document, ...], ...]

    def without_images(self) -> DocumentBatch:
        """Return the texts alone."""
        return DocumentBatch(
            microbatches=tuple(tuple(document.without_images() for document in one) for one in self.microbatches)
        )


def describe(batch: DocumentBatch) -> pb.Batch:
    """Say how large everything in a batch is: all that the planner gets to know of it."""
    described = pb.Batch()
    for documents in batch.microbatches:
        microbatch = described.microbatches.add()
        for document in documents:
            sample = microbatch.samples.add()
            sample.instances["language"].units.append(len(document.tokens))
            if document.images:
                sample.instances["vision"].units.extend(document.patches)
    return described


def loss_weight(batch: object) -> float:
    """Words that a batch's loss is averaged over."""
    if not isinstance(batch, DocumentBatch):
        raise TypeError(f"batch: a {type(batch).__name__}; must be a DocumentBatch")
    return float(sum(document.num_targets for documents in batch.microbatches for document in documents))


class DigitDocuments(Dataset[DocumentBatch]):
    """Batches of documents by number, always the same for the same seed.

    Parameters
    ----------
    num_batches, num_microbatches
        How many batches, and microbatches in each.
    seed
        Chooses texts, images and sizes.
    """

    def __init__(self, *, num_batches: int, num_microbatches: int, seed: int = 0) -> None:
        from sklearn.datasets import load_digits

        digits = load_digits()
        self._images = (torch.from_numpy(digits.images).to(torch.float32) / 16 - MEAN_GREY) / GREY_SPREAD
        self._labels: Sequence[int] = digits.target.tolist()
        self._num_batches, self._num_microbatches, self._seed = num_batches, num_microbatches, seed

    def __len__(self) -> int:
        """Return the number of batches."""
        return self._num_batches

    def __getitem__(self, number: int) -> DocumentBatch:
        """Make one batch."""
        if not 0 <= number < self._num_batches:
            raise IndexError(f"batch {number} of {self._num_batches}")
        draw = np.random.default_rng((self._seed, number))
        return DocumentBatch(microbatches=tuple(self._microbatch(draw) for _ in range(self._num_microbatches)))

    def _microbatch(self, draw: np.random.Generator) -> tuple[Document, ...]:
        """Documents of at least `TOKENS_OF_A_MICROBATCH` tokens together."""
        documents: list[Document] = []
        while sum(len(document.tokens) for document in documents) < TOKENS_OF_A_MICROBATCH:
            documents.append(self._document(draw))
        return tuple(documents)

    def _document(self, draw: np.random.Generator) -> Document:
        sentence = int(draw.integers(len(SENTENCES)))
        tokens = [_NUMBER["<begin>"]]
        images: list[torch.Tensor] = []
        wanted, patches = self._num_images(draw), 0
        while len(images) < wanted or 0 < patches < LEAST_PATCHES:
            if draw.random() < 0.3:
                tokens += _numbers(SENTENCES[sentence % len(SENTENCES)])
                sentence += 1
            index, side = int(draw.integers(len(self._labels))), int(draw.choice(SIZES))
            images.append(_scaled(self._images[index], side))
            patches += (side // PATCH) ** 2
            tokens += [IMAGE] * rows_of_patches((side // PATCH) ** 2)
            caption = CAPTIONS[int(draw.integers(len(CAPTIONS)))]
            tokens += _numbers(caption.format(DIGITS[self._labels[index]]).split())
        for _ in range(1 if images else int(draw.integers(8, 16))):
            tokens += _numbers(SENTENCES[sentence % len(SENTENCES)])
            sentence += 1
        return Document(images=tuple(images), tokens=torch.tensor(tokens))

    def _num_images(self, draw: np.random.Generator) -> int:
        if draw.random() < TEXT_ONLY_SHARE:
            return 0
        return min(MAX_IMAGES, 1 + int(3 * draw.pareto(1.5)))


def _numbers(words: Sequence[str]) -> list[int]:
    return [_NUMBER[word] for word in words]


def _scaled(image: torch.Tensor, side: int) -> torch.Tensor:
    return functional.interpolate(image[None, None], size=(side, side), mode="bilinear")[0, 0]
