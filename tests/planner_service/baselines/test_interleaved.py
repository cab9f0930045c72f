"""Shows that the order is Megatron-LM's, and that it runs for any numbers of ranks, stages and microbatches."""

from __future__ import annotations

import pytest
from dip.lowering import Phase

from planner_service.baselines.interleaved import interleaved_1f1b


def shown(ranks: int, microbatches: int, stages_of_rank: int, rank: int) -> str:
    table = interleaved_1f1b(ranks, microbatches, stages_of_rank=stages_of_rank)
    names = {Phase.FORWARD: "F", Phase.BACKWARD: "B"}
    return " ".join(f"{step.stage}{names[step.phase]}{step.microbatch}" for step in table.steps[rank])


def test_one_stage_a_rank_is_plain_1f1b() -> None:
    assert shown(2, 3, 1, 0) == "0F0 0F1 0B0 0F2 0B1 0B2"
    assert shown(2, 3, 1, 1) == "1F0 1B0 1F1 1B1 1F2 1B2"


def test_two_stages_a_rank() -> None:
    # Narayanan et al. 2021, figure 4: two ranks, four microbatches in groups of two
    assert shown(2, 4, 2, 0) == "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3"
    assert shown(2, 4, 2, 1) == "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"


def test_microbatches_that_do_not_divide_go_in_larger_groups() -> None:
    order = [step for step in shown(2, 5, 2, 0).split() if "F" in step]
    assert order == ["0F0", "0F1", "0F2", "2F0", "2F1", "2F2", "0F3", "0F4", "2F3", "2F4"]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("stages_of_rank", [1, 2, 3])
@pytest.mark.parametrize("microbatches", [1, 2, 3, 4, 5, 7, 8, 11, 16])
def test_every_order_is_whole_and_runs(ranks: int, stages_of_rank: int, microbatches: int) -> None:
    table = interleaved_1f1b(ranks, microbatches, stages_of_rank=stages_of_rank)
    num_stages = ranks * stages_of_rank
    assert table.placement == tuple(stage % ranks for stage in range(num_stages))
    for rank, steps in enumerate(table.steps):
        assert len(set(steps)) == len(steps) == 2 * stages_of_rank * microbatches
        assert {table.placement[step.stage] for step in steps} == {rank}
    left = [list(steps) for steps in table.steps]
    done: set[tuple[Phase, int, int]] = set()
    moved = True
    while moved:
        moved = False
        for steps in left:
            while steps and _may_run(steps[0], num_stages, done):
                done.add(tuple(steps.pop(0)))
                moved = True
    assert not any(left)


def _may_run(step: tuple[Phase, int, int], num_stages: int, done: set[tuple[Phase, int, int]]) -> bool:
    phase, stage, microbatch = step
    if phase == Phase.FORWARD:
        return stage == 0 or (phase, stage - 1, microbatch) in done
    after = stage == num_stages - 1 or (phase, stage + 1, microbatch) in done
    return after and (Phase.FORWARD, stage, microbatch) in done
