"""Shows that chunks of the model make up the same model however it is cut, and that instances do not see each other."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from examples.vlm.documents import DigitDocuments, DocumentBatch
from examples.vlm.model import Transformer, VlmConfig, _patches
from trainer_agent import Chunk, ChunkModule, GatheredResults, Instance, StageTask
from trainer_agent.stages import build_and_check

CONFIG = VlmConfig(
    vision=Transformer(layers=3, width=16, heads=2), language=Transformer(layers=4, width=24, heads=3), seed=5
)
BATCH = DigitDocuments(num_batches=1, num_microbatches=2, seed=1)[0]
LAYERS = {"vision": 3, "language": 4}


def chunks_of(module: str, cuts: list[int]) -> list[tuple[Chunk, ChunkModule]]:
    """Build a module cut before these layers."""
    ends = [0, *cuts, LAYERS[module]]
    chunks = [
        Chunk(
            module=module,
            index=index,
            rank=0,
            first_layer=first,
            num_layers=end - first,
            is_first=index == 0,
            is_last=end == LAYERS[module],
            is_loss=module == "language" and end == LAYERS[module],
        )
        for index, (first, end) in enumerate(pairwise(ends))
    ]
    return [(chunk, build_and_check(CONFIG.build_chunk, chunk)) for chunk in chunks]


def task_of(chunk: Chunk, batch: DocumentBatch, instances: tuple[Instance, ...] | None = None) -> StageTask:
    if instances is None:
        documents = batch.microbatches[0]
        sizes = [d.patches if chunk.module == "vision" else (len(d.tokens),) for d in documents]
        instances = tuple(Instance(s, i, units) for s, listed in enumerate(sizes) for i, units in enumerate(listed))
    hand_offs = CONFIG.hand_offs()[chunk.module]
    return StageTask(
        chunk=chunk,
        batch=batch,
        microbatch=0,
        sub_microbatch=0,
        instances=instances,
        output_rows=hand_offs.output.rows_of(instances),
        result_rows=hand_offs.handed_on.rows_of(instances),
        training=True,
    )


def see(cuts: list[int], instances: tuple[Instance, ...] | None = None) -> tuple[GatheredResults, StageTask]:
    x = torch.empty(0)
    for chunk, module in chunks_of("vision", cuts):
        task = task_of(chunk, BATCH, instances)
        x = module.enter(task, {}) if chunk.is_first else x
        for layer in module.layers:
            x = layer(x, task)
        x = module.leave(x, task) if chunk.is_last else x
    rows = {(i.sample, i.index): r for i, r in zip(task.instances, x.split(task.result_rows), strict=True)}
    return GatheredResults(rows), task


def read(cuts: list[int], seen: GatheredResults, batch: DocumentBatch = BATCH) -> tuple[float, dict[str, torch.Tensor]]:
    x, gradients = torch.empty(0), {}
    chunks = chunks_of("language", cuts)
    for chunk, module in chunks:
        task = task_of(chunk, batch)
        x = module.enter(task, {"vision": seen}) if chunk.is_first else x
        for layer in module.layers:
            x = layer(x, task)
        x = module.loss(x, task) if chunk.is_loss else x
    x.backward()
    for chunk, module in chunks:
        for name, parameter in module.named_parameters():
            owner, _, rest = name.partition(".")
            if owner == "layers":
                number, _, rest = rest.partition(".")
                name = f"layers.{int(number) + chunk.first_layer}.{rest}"
            assert parameter.grad is not None
            gradients[name] = parameter.grad
    return float(x.detach()), gradients


@pytest.mark.parametrize("cuts", [[1], [2], [1, 2]])
def test_vision_is_the_same_however_it_is_cut(cuts: list[int]) -> None:
    whole, _ = see([])
    cut, _ = see(cuts)
    assert list(whole) == list(cut)
    for key in whole:
        torch.testing.assert_close(whole[key], cut[key], rtol=0, atol=0)


@pytest.mark.parametrize("cuts", [[1], [3], [1, 2, 3]])
def test_language_is_the_same_however_it_is_cut(cuts: list[int]) -> None:
    seen = GatheredResults({key: rows.detach() for key, rows in see([])[0].items()})
    loss, gradients = read([], seen)
    loss_cut, gradients_cut = read(cuts, seen)
    assert loss == loss_cut > 0
    assert gradients.keys() == gradients_cut.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, gradients_cut[name], rtol=0, atol=0)


def test_an_image_looks_the_same_alone_and_among_others() -> None:
    together, task = see([])
    assert len(task.instances) > 1
    for instance in task.instances:
        alone, _ = see([], (instance,))
        key = instance.sample, instance.index
        torch.testing.assert_close(alone[key], together[key])


def test_the_loss_depends_on_the_images_and_reads_texts_without_any() -> None:
    seen, _ = see([])
    loss, _ = read([], GatheredResults({key: rows.detach() for key, rows in seen.items()}))
    other, _ = read([], GatheredResults({key: 1 - rows.detach() for key, rows in seen.items()}))
    assert loss != other
    blind, gradients = read([], GatheredResults({}), BATCH.without_images())
    assert blind > 0
    assert all(gradient.isfinite().all() for gradient in gradients.values())


def test_a_word_does_not_see_those_that_follow() -> None:
    (chunk, module), *_ = chunks_of("language", [1])
    task = task_of(chunk, BATCH.without_images())
    x = module.enter(task, {"vision": GatheredResults({})}).detach().requires_grad_()
    y = module.layers[0](x, task)
    rows = task.output_rows[0]
    y[rows // 2].sum().backward()
    assert x.grad is not None
    reached = x.grad.abs().sum(1) > 0
    assert reached.nonzero()[:, 0].tolist() == list(range(rows // 2 + 1))


def test_patches_of_a_square_stand_together() -> None:
    image = torch.zeros(32, 32)
    image[16:, :16] = 1  # the square in the lower left: four patches
    rows = _patches(image)
    assert rows.shape == (16, 64)
    assert rows.sum(1).nonzero()[:, 0].tolist() == [8, 9, 10, 11]
