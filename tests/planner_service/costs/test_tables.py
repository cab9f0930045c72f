"""Shows how tables of a file become dataclasses: types as annotated, close names suggested, every fault collected."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from planner_service.costs.tables import DescriptionError, Faults, read_table


@dataclass(frozen=True, kw_only=True)
class Point:
    name: str
    units: int
    share: float = 1.0
    wanted: bool = False
    sizes: tuple[float, ...] = ()
    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.units < 0:
            raise ValueError(f"units is {self.units}, must be 0 or more")


def test_values_become_what_fields_are() -> None:
    faults = Faults()
    table = {"units": 3, "share": 2, "wanted": True, "sizes": [1, 2.5], "inputs": ["a"]}
    made = read_table(Point, table, "", faults, name="given")
    assert made == Point(name="given", units=3, share=2.0, wanted=True, sizes=(1.0, 2.5), inputs=("a",))
    assert made is not None
    assert isinstance(made.share, float)
    assert len(faults) == 0


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"units": 3.0}, "at.units is 3.0, must be a whole number"),
        ({"units": True}, "at.units is True, must be a whole number"),
        ({"units": -1}, "at.units is -1, must be 0 or more"),
        ({"units": 1, "share": float("inf")}, "at.share is inf, must be a number"),
        ({"units": 1, "share": 10**400}, "at.share is a whole number of 1329 bits, must be a number"),
        ({"units": 1, "sizes": [1, None]}, "at.sizes[1] is None, must be a number"),
        ({"units": 1, "wanted": 1}, "at.wanted is 1, must be true or false"),
        ({"units": 1, "unit": 1}, "at.unit is no known key; did you mean units?"),
        ({"units": 1, "name": "taken"}, "at.name is no known key; there are units"),
        ({}, "at.units is missing, must be a whole number"),
        ([], "at is a list of 0, must be a table"),
        ("text\n" * 100, "at is 'text"),
    ],
)
def test_faults_have_their_path(table: object, says: str) -> None:
    faults = Faults()
    assert read_table(Point, table, "at", faults, name="given") is None
    with pytest.raises(DescriptionError) as raised:
        faults.raise_if_any()
    assert says in str(raised.value)


def test_nothing_is_raised_without_faults() -> None:
    Faults().raise_if_any()
    with pytest.raises(ValueError, match="faults is empty"):
        DescriptionError(())
