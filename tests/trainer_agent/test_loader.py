"""The user's loader, read ahead: every batch once and in order, announced in time, abandoned where a loop ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cases
import pytest

from trainer_agent.loader import PlannedLoader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dip.planner.v1 import planner_pb2 as pb


class Book:
    """Writes down what a loader does."""

    def __init__(self) -> None:
        self.log: list[tuple[str, object]] = []
        self.next = 0

    def begin_at(self, iteration: int | None) -> None:
        self.next = self.next if iteration is None else iteration

    def announce(self, metadata: pb.Batch) -> int:
        self.log.append(("announce", self.next))
        self.next += 1
        return self.next - 1

    def hand_out(self, iteration: int, batch: object) -> None:
        self.log.append(("hand out", iteration))

    def abandon(self, iterations: Iterable[int]) -> None:
        self.log.append(("abandon", list(iterations)))


def describe(batch: str) -> pb.Batch:
    return cases.batch(cases.documents(1))


def test_batches_are_announced_ahead_of_their_turn() -> None:
    book = Book()
    assert list(PlannedLoader(book, "abcd", describe, look_ahead=2)) == list("abcd")
    assert book.log == [
        ("announce", 0),
        ("announce", 1),
        ("announce", 2),
        ("hand out", 0),
        ("announce", 3),
        ("hand out", 1),
        ("hand out", 2),
        ("hand out", 3),
        ("abandon", []),
    ]


@pytest.mark.parametrize("look_ahead", [0, 1, 2, 5, 50])
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_every_batch_comes_once_and_in_order(look_ahead: int, length: int) -> None:
    book, batches = Book(), [str(number) for number in range(length)]
    assert list(PlannedLoader(book, batches, describe, look_ahead=look_ahead)) == batches
    assert [entry for entry in book.log if entry[0] == "hand out"] == [("hand out", i) for i in range(length)]


def test_no_look_ahead_announces_each_batch_when_its_turn_comes() -> None:
    book = Book()
    list(PlannedLoader(book, "ab", describe, look_ahead=0))
    assert [what for what, _ in book.log] == ["announce", "hand out", "announce", "hand out", "abandon"]


def test_epochs_are_numbered_on() -> None:
    book = Book()
    loader = PlannedLoader(book, "ab", describe, start_iteration=10)
    assert [*loader, *loader] == list("abab")
    assert [entry for entry in book.log if entry[0] == "hand out"] == [("hand out", i) for i in range(10, 14)]


def test_a_loop_that_breaks_off_abandons_what_was_read_ahead() -> None:
    book = Book()
    for _ in PlannedLoader(book, "abcdef", describe, look_ahead=2):
        break
    assert book.log[-1] == ("abandon", [1, 2])


def test_nothing_is_read_before_the_loop_starts() -> None:
    def never() -> Iterator[str]:
        raise AssertionError("read too early")
        yield ""

    book = Book()
    PlannedLoader(book, never(), describe)
    assert book.log == []


def test_errors_of_the_users_loader_come_through() -> None:
    def breaks() -> Iterator[str]:
        yield "a"
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        list(PlannedLoader(Book(), breaks(), describe))


def test_the_length_is_the_loaders() -> None:
    assert len(PlannedLoader(Book(), "abcd", describe)) == 4
    with pytest.raises(TypeError, match="generator has no length"):
        len(PlannedLoader(Book(), (c for c in "ab"), describe))


@pytest.mark.parametrize("wrong", [{"look_ahead": -1}, {"start_iteration": -1}])
def test_numbers_below_0_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: -1"):
        PlannedLoader(Book(), "a", describe, **wrong)
