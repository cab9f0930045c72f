"""Shows that documents are the same for the same seed, vary as they should, and name the digits that they show."""

from __future__ import annotations

import itertools

import pytest
import torch
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_batch

from examples.vlm.documents import (
    DIGITS,
    IMAGE,
    LEAST_PATCHES,
    MAX_IMAGES,
    NO_TARGET,
    VOCABULARY,
    DigitDocuments,
    Document,
    describe,
    loss_weight,
    rows_of_patches,
)
from examples.vlm.job import profile_target
from examples.vlm.model import VlmConfig

DOCUMENTS = DigitDocuments(num_batches=6, num_microbatches=4, seed=3)
ALL = [document for number in range(6) for microbatch in DOCUMENTS[number].microbatches for document in microbatch]


def equal(one: Document, other: Document) -> bool:
    return torch.equal(one.tokens, other.tokens) and all(map(torch.equal, one.images, other.images))


def test_the_same_seed_and_number_make_the_same_batch() -> None:
    again = DigitDocuments(num_batches=2, num_microbatches=4, seed=3)[1]
    assert describe(again) == describe(DOCUMENTS[1])
    for one, other in zip(again.microbatches, DOCUMENTS[1].microbatches, strict=True):
        assert all(map(equal, one, other))
    assert describe(DigitDocuments(num_batches=2, num_microbatches=4, seed=4)[1]) != describe(again)
    assert describe(DOCUMENTS[0]) != describe(again)


def test_batches_end_where_they_say() -> None:
    assert len(DOCUMENTS) == 6
    with pytest.raises(IndexError, match="batch 6 of 6"):
        DOCUMENTS[6]


def test_numbers_and_sizes_of_images_vary_strongly() -> None:
    numbers = [len(document.images) for document in ALL]
    assert min(numbers) == 0
    assert 8 <= max(numbers) <= MAX_IMAGES
    assert len({patches for document in ALL for patches in document.patches}) == 5
    assert all(sum(document.patches) >= LEAST_PATCHES for document in ALL if document.images)


def test_every_image_has_its_rows_and_then_the_word_of_its_digit() -> None:
    for document in ALL:
        tokens = document.tokens.tolist()
        assert tokens.count(IMAGE) == sum(map(rows_of_patches, document.patches))
        after = [word for row, word in itertools.pairwise(tokens) if row == IMAGE != word]
        assert [VOCABULARY[word] in DIGITS for word in after] == [True] * len(document.images)


def test_a_digit_has_one_word_wherever_it_stands() -> None:
    words: dict[bytes, set[int]] = {}
    for document in ALL:
        tokens = document.tokens.tolist()
        after = [word for row, word in itertools.pairwise(tokens) if row == IMAGE != word]
        for image, word in zip(document.images, after, strict=True):
            words.setdefault(image.numpy().tobytes(), set()).add(word)
    assert all(len(found) == 1 for found in words.values())


def test_targets_are_the_words_that_follow() -> None:
    for document in ALL:
        for position, target in enumerate(document.targets.tolist()):
            following = document.tokens[position + 1 :].tolist()[:1]
            assert target == (following[0] if following and following[0] != IMAGE else NO_TARGET)
        assert document.num_targets == int((document.targets != NO_TARGET).sum())


def test_without_images_the_same_words_are_predicted() -> None:
    batch = DOCUMENTS[0]
    blind = batch.without_images()
    assert loss_weight(blind) == loss_weight(batch) > 0
    for before, after in zip(batch.microbatches, blind.microbatches, strict=True):
        for one, other in zip(before, after, strict=True):
            assert not other.images
            assert other.targets[:-1].tolist() == one.targets[one.targets != NO_TARGET].tolist()


def test_the_planner_is_told_all_sizes() -> None:
    batch = DOCUMENTS[2]
    described = describe(batch)
    spec = profile_target(VlmConfig(), ranks=2).spec
    for module in spec.model.modules:
        module.layers[0].cost.points.add(units=1, forward_us=1)
    validate_batch(spec, described)
    for documents, microbatch in zip(batch.microbatches, described.microbatches, strict=True):
        for document, sample in zip(documents, microbatch.samples, strict=True):
            sizes = {name: list(instances.units) for name, instances in sample.instances.items()}
            expected = {"language": [len(document.tokens)], "vision": [int(i.numel()) // 64 for i in document.images]}
            assert sizes == {name: units for name, units in expected.items() if units}
    assert described.WhichOneof is not None
    assert isinstance(described, pb.Batch)


def test_a_batch_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a DocumentBatch"):
        loss_weight(3)
