"""Shows how times, ranges and lists read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from planner_service.watching import words

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    ("us", "said"),
    [
        (0, "0 us"),
        (999, "999 us"),
        (1_000, "1.00 ms"),
        (8_714, "8.71 ms"),
        (99_940, "99.9 ms"),
        (999_499, "999 ms"),
        (999_500, "1.00 s"),
        (12_345_678, "12.3 s"),
        (99_999_999, "100 s"),
        (100_000_000, "1.67 min"),
        (36_000_000_000, "600 min"),
    ],
)
def test_a_duration_has_three_digits(us: int, said: str) -> None:
    assert words.duration(us) == said


@pytest.mark.parametrize(
    ("ms", "said"),
    [(0, "0 s"), (119_999, "119 s"), (120_000, "2 min"), (7_200_000, "2 h"), (200 * 3_600_000, "8 days")],
)
def test_the_past_has_one_number(ms: int, said: str) -> None:
    assert words.ago(ms) == said


@pytest.fixture
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Live in UTC for a while."""
    with monkeypatch.context() as environment:
        environment.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_utc")
def test_an_attempt_is_a_time_where_it_is_a_clock() -> None:
    assert words.attempt(3) == "3"
    assert words.attempt(2**63 - 1) == str(2**63 - 1)
    assert words.attempt(1_796_003_661_841_993) == "11-30 01:54"


@pytest.mark.parametrize(
    ("numbers", "said"), [([], ""), ([3], "3"), ([2, 0, 1, 5, 2], "0-2, 5"), ([1, 3, 4], "1, 3-4")]
)
def test_numbers_are_ranges(numbers: list[int], said: str) -> None:
    assert words.ranges(numbers) == said


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([], ""),
        ([0, 1, 2, 3], "0-3"),
        ([0, 1, 2, 3] * 2, "2 x 0-3"),
        ([0, 1, 2, 3, 3, 2, 1, 0], "0-3, 3-0"),
        ([3, 2, 1, 0], "3-0"),
        ([0, 1] * 3, "3 x 0-1"),
        ([2, 2, 5], "2 x 2, 5"),
        ([0], "0"),
    ],
)
def test_a_walk_over_ranks_reads_as_it_goes(ranks: list[int], said: str) -> None:
    assert words.visits(ranks) == said


def test_lists_are_cut() -> None:
    assert words.and_more(["a", "b", "c"], 3) == "a, b, c"
    assert words.and_more(["a", "b", "c"], 1) == "a and 2 more"


def test_what_others_say_obeys_nobody() -> None:
    assert words.printable("a\n\x1b[31mb\u202e\té") == r"a \x1b[31mb\u202e é"
