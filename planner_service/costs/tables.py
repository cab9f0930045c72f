"""From a table of a TOML or JSON file to a dataclass: names and types checked, every fault with its path."""

from __future__ import annotations

import dataclasses
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

from planner_service.costs.checks import shown

if TYPE_CHECKING:
    from collections.abc import Collection

    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

MAX_FAULTS = 50
"""Faults that one error lists."""

_LARGEST_FLOAT = 1e300


class DescriptionError(ValueError):
    """A description that cannot be used.

    Parameters
    ----------
    faults
        Every fault that was found, each with the field's path, what it held and what is allowed; at least one.
    """

    def __init__(self, faults: tuple[str, ...]) -> None:
        if not faults:
            raise ValueError("faults is empty; a description that cannot be used has at least one")
        self.faults = faults
        super().__init__("\n".join(faults))


class Faults:
    """Faults found so far, so that the writer of a file hears of all of them at once."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, path: str, says: str) -> None:
        """Record a fault of what is at a path."""
        text = f"{path}{says}"
        self._found.append(text if text.isprintable() else text.encode("unicode_escape").decode("ascii"))

    def raise_if_any(self) -> None:
        """Raise a DescriptionError where there is at least one fault."""
        if self._found:
            more = len(self._found) - MAX_FAULTS
            listed = self._found[:MAX_FAULTS] + ([f"and {more} more"] if more > 0 else [])
            raise DescriptionError(tuple(listed))


def field_names(kind: type[DataclassInstance]) -> frozenset[str]:
    """Names of a dataclass's fields."""
    return frozenset(field.name for field in dataclasses.fields(kind))


def read_table(
    kind: type[T], table: object, path: str, faults: Faults, *, others: Collection[str] = (), **given: object
) -> T | None:
    """Make a dataclass from a table that has its fields as keys.

    Parameters
    ----------
    kind
        The dataclass; its fields are text, numbers, truth values, or tuples of one of them.
    table
        What the file holds.
    path
        Where the file holds it; empty for the whole.
    faults
        Collects unknown and missing keys, wrong types, and what the dataclass itself refuses.
    others
        Keys that are allowed and belong to something else.
    given
        Fields that do not come from the table.

    Returns
    -------
    The dataclass; None where there were faults.
    """
    if not isinstance(table, dict):
        faults.add(path, f" is {shown(table)}, must be a table")
        return None
    before = len(faults)
    at = f"{path}." if path else ""
    readable = [f for f in dataclasses.fields(kind) if f.name not in given]
    _find_unknown(table, [field.name for field in readable] + sorted(others), at, faults)
    values = dict(given)
    for field in readable:
        if field.name in table:
            values[field.name] = _value(table[field.name], str(field.type), at + field.name, faults)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            faults.add(at, f"{field.name} is missing, must be {_WANTED[str(field.type)]}")
    if len(faults) > before:
        return None
    try:
        return kind(**values)
    except ValueError as error:
        faults.add(at, str(error))
        return None


def _find_unknown(table: dict[str, object], known: list[str], at: str, faults: Faults) -> None:
    for key in table:
        if key not in known:
            close = get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            faults.add(at, f"{shown(key)[1:-1]} is no known key; {hint}")


_WANTED = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "tuple[str, ...]": "a list of text",
    "tuple[float, ...]": "a list of numbers",
}
"""Types of fields, as they are annotated, and what errors call them."""
_ELEMENT = {"tuple[str, ...]": "str", "tuple[float, ...]": "float"}


def _value(held: object, wanted: str, path: str, faults: Faults) -> object:
    if wanted in _ELEMENT:
        if not isinstance(held, list):
            faults.add(path, f" is {shown(held)}, must be {_WANTED[wanted]}")
            return ()
        return tuple(_value(one, _ELEMENT[wanted], f"{path}[{i}]", faults) for i, one in enumerate(held))
    value = _number(held) if wanted == "float" else held if type(held).__name__ == wanted else None
    if value is None:
        faults.add(path, f" is {shown(held)}, must be {_WANTED[wanted]}")
    return value


def _number(held: object) -> float | None:
    """Return what was held as a float; None where it is no finite number."""
    if isinstance(held, bool) or not isinstance(held, int | float) or not abs(held) <= _LARGEST_FLOAT:
        return None
    return float(held)
