"""Which forwards may start: the rule by hand, and the tree against the rule spelled out, step by step."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from dip.admission import Admission
from hypothesis import given
from hypothesis import strategies as st


@dataclass(kw_only=True)
class Spelled:
    """The rule, looked up group by group."""

    room: int
    needs: list[int]
    held: list[int] = field(init=False)
    offered: list[tuple[int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held = [0] * len(self.needs)

    def admits(self, group: int, num_bytes: int) -> bool:
        earlier = (e for e in range(group) if self.needs[e])
        return all(self.needs[e] + sum(self.held[e + 1 :]) + num_bytes <= self.room for e in earlier)

    def first(self) -> tuple[int, int] | None:
        able = [(group, -cell) for group, cell, num_bytes in self.offered if self.admits(group, num_bytes)]
        return (min(able)[0], -min(able)[1]) if able else None


def test_a_later_group_never_takes_what_an_earlier_one_still_needs() -> None:
    admission = Admission(10, [6, 6, 2])
    for group, num_bytes in enumerate((6, 4, 2)):
        admission.offer(group, cell=group, num_bytes=num_bytes)
    assert admission.first() == (0, 0)
    assert [admission.admits(1, 4), admission.admits(1, 5)] == [True, False]  # 6 are for the first group
    admission.start(0, 0, 6)
    assert admission.first() == (1, 1)
    admission.start(1, 1, 4)
    assert admission.first() is None  # the third would take 2 of the 2 that the second still needs
    admission.free(0, 6)
    assert admission.first() == (2, 2)


def test_what_keeps_less_may_overtake_what_does_not_fit() -> None:
    admission = Admission(10, [9, 5, 3])
    admission.offer(1, 10, 5)
    admission.offer(2, 20, 1)
    assert admission.first() == (2, 20)
    admission.start(2, 20, 1)
    assert admission.first() is None


def test_of_one_group_the_last_cell_comes_first() -> None:
    admission = Admission(None, [3])
    for cell in (4, 7, 5):
        admission.offer(0, cell, 1)
    started = []
    while (found := admission.first()) is not None:
        started.append(found[1])
        admission.start(0, found[1], 1)
    assert started == [7, 5, 4]


def test_without_a_limit_all_may_start() -> None:
    admission = Admission(None, [5, 1, 7])
    assert all(admission.admits(group, need) for group, need in enumerate([5, 1, 7]))


@pytest.mark.parametrize("needs", [[], [0, 0]])
def test_nothing_waits_where_nothing_is_kept(needs: list[int]) -> None:
    admission = Admission(0, needs)
    assert admission.first() is None
    for group in range(len(needs)):
        admission.offer(group, group, 0)
        assert admission.first() == (group, group)
        admission.start(group, group, 0)


@given(st.data())
def test_the_tree_finds_what_the_rule_allows(data: st.DataObject) -> None:
    """Cells of random groups are offered, started and given back in any order that the rule allows."""
    sizes = data.draw(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), min_size=1, max_size=9))
    needs = [sum(of_group) for of_group in sizes]
    room = max(needs) + data.draw(st.integers(0, 8))
    spelled, admission = Spelled(room=room, needs=list(needs)), Admission(room, needs)
    unseen = data.draw(st.permutations([(group, i, b) for group, row in enumerate(sizes) for i, b in enumerate(row)]))
    running: list[tuple[int, int, int]] = []
    while unseen or spelled.offered or running:
        found = spelled.first()
        assert admission.first() == found
        assert all(admission.admits(g, b) == spelled.admits(g, b) for g, _, b in spelled.offered)
        choices = ["offer"] * bool(unseen) + ["start"] * bool(found) + ["free"] * bool(running)
        match data.draw(st.sampled_from(choices)):
            case "offer":
                spelled.offered.append(unseen.pop())
                admission.offer(*spelled.offered[-1])
            case "start":
                entry = next(entry for entry in spelled.offered if entry[:2] == found)
                spelled.offered.remove(entry)
                spelled.held[entry[0]] += entry[2]
                admission.start(*entry)
                running.append(entry)
            case _:
                group, _, num_bytes = running.pop(data.draw(st.integers(0, len(running) - 1)))
                spelled.held[group] -= num_bytes
                spelled.needs[group] -= num_bytes
                admission.free(group, num_bytes)
