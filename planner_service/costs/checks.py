"""What every part of a description asks of its values: ranges, and errors that show what was held."""

from __future__ import annotations

_SHOWN_CHARACTERS = 60
_SHOWN_BITS = 256


def shown(value: object) -> str:
    """Return a value as an error shows it: shortened, and whatever it is, without failing."""
    if isinstance(value, dict | list | tuple):
        return f"a {'table' if isinstance(value, dict) else 'list'} of {len(value)}"
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return f"a whole number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def require(field: str, held: object, allowed: str, *, when: bool) -> None:
    """Raise a ValueError that says what the field held and what is allowed, unless the condition holds."""
    if not when:
        raise ValueError(f"{field} is {shown(held)}, must be {allowed}")


def require_range(field: str, held: float, low: float, high: float) -> None:
    """Raise a ValueError where a number is not within ``low..high``; NaN never is."""
    require(field, held, f"from {low:,} to {high:,}", when=low <= held <= high)


def require_name(field: str, held: str, longest: int) -> None:
    """Raise a ValueError where a name is empty, too long or not printable."""
    good = 0 < len(held) <= longest and held.isprintable()
    require(field, held, f"1 to {longest} printable characters", when=good)
