"""Why a choice was made, in words: the chosen one, the next best, and what one other number would have cost."""

from __future__ import annotations

from dataclasses import replace

from planner_service.partition.choice import Choice, Shape
from planner_service.partition.report import ChoiceReport, Tried
from planner_service.partition.trials import Outcome

CHOSEN = Choice(
    shapes=(Shape(segments=4, zigzag=True), Shape(segments=1, backwards=True, width=2)), parts=(2, 1), slices=3
)


def tried(choice: Choice, makespan_us: int | None) -> Tried:
    score = float("inf") if makespan_us is None else float(makespan_us)
    return Tried(choice=choice, outcome=Outcome(makespan_us=makespan_us, num_tasks=40), score=score)


def report(*others: Tried, kept: bool = False) -> ChoiceReport:
    return ChoiceReport(
        modules=("vision", "language"),
        kept_partition=kept,
        tried=(tried(CHOSEN, 200_000), *others),
        skipped=7,
        chosen=CHOSEN,
    )


def test_it_says_what_was_chosen() -> None:
    assert report().text().splitlines() == [
        "tried 1 choice; did not fit: 0; ruled out by their load: 7",
        "vision: 4 segments there and back, largest microbatch in 2 parts",
        "language: 1 segment on 2 ranks from the last rank, no microbatch cut for its size",
        "for memory: 3 groups of the microbatch that keeps most",
        "its quick schedule: 200.0 ms, 40 tasks",
    ]


def test_it_says_what_else_would_have_cost() -> None:
    second = CHOSEN.with_parts(0, 4).with_parts(1, 2)
    lines = report(
        tried(CHOSEN.with_shape(0, Shape(segments=2)), 220_000),
        tried(second, 201_000),
        tried(replace(second, slices=1), 202_000),
        tried(replace(CHOSEN, slices=1), None),
        tried(replace(CHOSEN, slices=2), 204_000),
    ).text()
    assert lines.splitlines()[0] == "tried 6 choices; did not fit: 1; ruled out by their load: 7"
    assert lines.splitlines()[-3:] == [
        "with vision in 4 parts and language in 2 parts: +0.50%",
        "with 2 groups: +2.00%",
        "with vision in 2 segments: +10.00%",
    ]


def test_a_kept_partition_is_not_described() -> None:
    assert "segment" not in report(kept=True).text()


def test_it_says_so_where_nothing_fits_or_only_pieces_do() -> None:
    misfit = tried(CHOSEN, None)
    none = ChoiceReport(modules=("vision", "language"), kept_partition=False, tried=(misfit,), skipped=0, chosen=None)
    assert none.text().splitlines()[-1] == "nothing fits"
    assert "as few pieces as memory allows" in replace(none, chosen=CHOSEN).text()
