"""Shows that copies of one tensor start alike, get the gradient of the one tensor, and stay alike; else an error."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import torch
from pipelines.cases import check, make_case, random_batch
from pipelines.models import TinyModel, TinyModule
from pipelines.scripted import construct
from pipelines.training import train_all

from trainer_agent.reduction import EarlierGradients

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipelines.processes import Workers
    from pipelines.training import Case

    from trainer_agent.mesh import Mesh

MODEL = TinyModel(
    modules=(
        TinyModule(name="vision", layers=2, width=4),
        TinyModule(name="language", inputs=("vision",), layers=4, width=4),
    ),
    tied=(
        ("language.layers.0.mix.weight", "language.layers.3.mix.weight", "vision.layers.1.mix.weight"),
        ("vision.embed.weight", "language.embed.weight"),
    ),
)


def run(workers: Workers, cases: Sequence[Case]) -> None:
    answers = workers.run(train_all, cases[0].ranks * cases[0].replicas, cases)
    for number, case in enumerate(cases):
        check(case, [of_rank[number] for of_rank in answers])


@pytest.mark.parametrize(("ranks", "replicas"), [(1, 1), (2, 1), (3, 1), (2, 2)])
def test_copies_anywhere_train_as_one(workers: Workers, ranks: int, replicas: int) -> None:
    """On one rank and on several, split and whole, where some replicas have no images, and over several steps."""
    draw, cases = random.Random(10 * ranks + replicas), []
    for number in range(4):
        batches = [[random_batch(draw, MODEL, draw.randint(1, 4)) for _ in range(replicas)] for _ in range(4)]
        batches[1][-1] = random_batch(draw, MODEL, 2, bare=range(2))
        batches[2] = [random_batch(draw, MODEL, 2, empty=range(2)) for _ in range(replicas)]
        case = make_case(draw, f"tied {number}", MODEL, ranks, batches, split=0.5 if number % 2 else None)
        cases.append(replace(case, accumulate=1 + number // 2))
    run(workers, cases)


@pytest.mark.parametrize(
    ("tied", "said"),
    [
        ((("vision.embed.weight", "vision.embed.weights"),), "'vision.embed.weights'; no rank has a parameter"),
        ((("vision.embed.weight",),), "['vision.embed.weight']; must be the names of two"),
        ((("vision.embed.weight", "vision.embed.weight"),), "stands there twice"),
        (
            (("vision.embed.weight", "language.head.weight"),),
            "'language.head.weight' is [4, 4] of torch.float64, trained, 'vision.embed.weight' is [4, 3] of",
        ),
    ],
)
def test_ties_that_cannot_be_are_refused_on_every_rank(
    workers: Workers, tied: tuple[tuple[str, ...], ...], said: str
) -> None:
    draw, model = random.Random(1), replace(MODEL, tied=tied)
    case = make_case(draw, "refused", model, 2, [[random_batch(draw, model, 1)]])
    for raised in workers.run(construct, 2, case):
        assert said in raised


def test_a_frozen_copy_of_a_trained_one_is_refused(workers: Workers) -> None:
    draw = random.Random(2)
    model = replace(MODEL, modules=(replace(MODEL.modules[0], frozen=True), MODEL.modules[1]))
    case = make_case(draw, "frozen", model, 2, [[random_batch(draw, model, 1)]])
    for raised in workers.run(construct, 2, case):
        assert "trained, 'vision.embed.weight' is" in raised or "frozen, 'language" in raised


@pytest.mark.parametrize("replicas", [1, 2])
def test_only_what_is_added_up_again_is_taken_away(replicas: int) -> None:
    tied, other = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
    for parameter in (tied, other):
        parameter.grad = torch.ones(2)
    earlier = EarlierGradients([tied, other], [tied], cast("Mesh", SimpleNamespace(replicas=replicas)))
    assert [parameter.grad is None for parameter in (tied, other)] == [True, replicas > 1]
    tied.grad = torch.full((2,), 5.0)
    earlier.put_back()
    assert tied.grad.tolist() == [6.0, 6.0]
    assert other.grad is not None
    assert other.grad.tolist() == [1.0, 1.0]
