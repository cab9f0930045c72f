"""Collects what is wrong with a request, so that its sender hears of everything at once."""

from __future__ import annotations

from typing import NoReturn

from dip.errors import FieldViolation, InvalidRequestError
from dip.validation.limits import MAX_NAME_LENGTH, MAX_VIOLATIONS

_SHOWN_CHARACTERS = 80
_FIELD_CHARACTERS = 300
_DESCRIPTION_CHARACTERS = 500


class Violations:
    """Violations found so far, in the order of the request's fields."""

    def __init__(self) -> None:
        self._found: list[FieldViolation] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, field: str, held: object, allowed: str) -> None:
        """Record that a field holds what is not allowed.

        Parameters
        ----------
        field
            The field's path from the request's root.
        held
            Its value.
        allowed
            What the value must be; completes the sentence "must be ...".

        Raises
        ------
        InvalidRequestError
            When enough violations are known: looking for more would cost more than it tells.
        """
        if isinstance(held, str):
            held = held[: _SHOWN_CHARACTERS + 1]  # to write all of a name of megabytes out would cost as many again
        self._append(field, f"is {_shortened(repr(held), _SHOWN_CHARACTERS)}, must be {allowed}")

    def missing(self, field: str, allowed: str) -> None:
        """Record that a field is not set, or a list empty, that must hold what ``allowed`` says."""
        self._append(field, f"is empty, must be {allowed}")

    def in_range(self, field: str, value: float, low: float, high: float) -> bool:
        """Record a number outside ``low..high``, NaN included; return whether it is inside."""
        if low <= value <= high:
            return True
        self.add(field, value, f"from {low} to {high}")
        return False

    def name(self, field: str, value: str, longest: int = MAX_NAME_LENGTH) -> bool:
        """Record a name that is empty, too long or not printable; return whether it is none of these."""
        if 0 < len(value) <= longest and value.isprintable():
            return True
        self.add(field, value, f"1 to {longest} printable characters")
        return False

    def raise_if_any(self) -> None:
        """Raise what was collected.

        Raises
        ------
        InvalidRequestError
            Where there is at least one violation.
        """
        if self._found:
            self._raise()

    def _append(self, field: str, description: str) -> None:
        # names of a hostile request are part of both, whatever their length and characters
        self._found.append(
            FieldViolation(
                field=_shortened(_printable(field[: _FIELD_CHARACTERS + 1]), _FIELD_CHARACTERS),
                description=_shortened(_printable(description), _DESCRIPTION_CHARACTERS),
            )
        )
        if len(self._found) >= MAX_VIOLATIONS:
            self._raise()

    def _raise(self) -> NoReturn:
        raise InvalidRequestError(tuple(self._found))


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}..."


def _printable(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
