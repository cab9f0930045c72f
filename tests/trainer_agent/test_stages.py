"""Shows that a user's mistakes in chunks and hand-offs are answered with what is wrong and what is allowed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from trainer_agent.errors import StageInterfaceError
from trainer_agent.stages import Chunk, ChunkModule, GatheredResults, HandOff, Instance, build_and_check

INSIDE = Chunk(
    module="language", index=1, rank=0, first_layer=2, num_layers=2, is_first=False, is_last=False, is_loss=False
)


class Bare(ChunkModule):
    """Layers and nothing else."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Identity() for _ in range(num_layers))


class NoLayers(ChunkModule):
    """Forgot its layers."""


class PlainList(ChunkModule):
    """Its layers' parameters would be nobody's."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Identity(), nn.Identity()]  # type: ignore[assignment]


def test_a_chunk_that_keeps_the_interface_is_returned() -> None:
    made = Bare(2)
    assert build_and_check(lambda chunk: made, INSIDE) is made


@pytest.mark.parametrize(
    ("build", "chunk", "said"),
    [
        (lambda chunk: nn.Linear(2, 2), INSIDE, "returned a Linear; must be a ChunkModule"),
        (lambda chunk: NoLayers(), INSIDE, "layers is a NoneType; must be an nn.ModuleList"),
        (lambda chunk: PlainList(), INSIDE, "layers is a list; must be an nn.ModuleList"),
        (lambda chunk: Bare(3), INSIDE, "3 layers; must be 2"),
        (lambda chunk: Bare(2), replace(INSIDE, is_first=True), "does not define enter, but starts a module"),
        (lambda chunk: Bare(2), replace(INSIDE, is_last=True, is_loss=True), "does not define loss, but ends"),
    ],
)
def test_a_chunk_that_does_not_is_named(build: object, chunk: Chunk, said: str) -> None:
    with pytest.raises(StageInterfaceError, match=said) as caught:
        build_and_check(build, chunk)  # type: ignore[arg-type]
    assert "language.1 (layers 2..3)" in str(caught.value)


def test_hand_offs_follow_from_units() -> None:
    instances = (Instance(0, 0, 5), Instance(0, 1, 9))
    assert HandOff(features=(4,)).rows_of(instances) == (5, 9)
    merged = HandOff(features=(2, 3), rows=lambda units: -(-units // 4))
    assert merged.rows_of(instances) == (2, 3)
    assert merged.shape(5) == (5, 2, 3)


def test_hand_offs_without_size_or_with_rows_that_are_no_count_are_refused() -> None:
    with pytest.raises(ValueError, match=r"HandOff.features: \(4, 0\)"):
        HandOff(features=(4, 0))
    with pytest.raises(StageInterfaceError, match=r"HandOff.rows\(5\) is -1"):
        HandOff(features=(4,), rows=lambda units: 4 - units).rows_of([Instance(0, 0, 5)])
    with pytest.raises(StageInterfaceError, match=r"HandOff.rows\(5\) is 2.5; must be a whole number"):
        HandOff(features=(4,), rows=lambda units: units / 2).rows_of([Instance(0, 0, 5)])  # type: ignore[arg-type, return-value]


def test_gathered_results_stand_by_sample_and_index_whatever_the_plan_made_first() -> None:
    keys = [(2, 0), (0, 1), (0, 0)]
    gathered = GatheredResults({key: torch.full((1,), float(key[0] * 10 + key[1])) for key in keys})
    assert list(gathered) == [(0, 0), (0, 1), (2, 0)]
    assert [float(rows) for rows in gathered.of_sample(0)] == [0.0, 1.0]
    assert gathered.of_sample(1) == []
    assert len(gathered) == 3
