"""Finds what keeps a JSON value from being a message: unknown fields and wrong types, each with its path.

The protobuf library stops at the first fault and names it in its own terms; people fix files sooner from a list.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from dip.errors import FieldViolation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_SHOWN_CHARACTERS = 60


def shape_faults(value: object, descriptor: Descriptor, path: str = "") -> Iterator[FieldViolation]:
    """Yield the faults of a JSON value that should be a message; null stands for a field that is not set."""
    if not isinstance(value, dict):
        yield _fault(path, value, f"an object, a {descriptor.name}")
        return
    fields = {name: field for field in descriptor.fields for name in (field.name, field.json_name)}
    for key, held in value.items():
        at = f"{path}.{key}" if path else key
        field = fields.get(key)
        if field is None:
            names = [known.name for known in descriptor.fields]
            close = get_close_matches(key, names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names) or 'none'}"
            yield FieldViolation(field=at, description=f"is no field of {descriptor.name}; {hint}")
        elif held is not None:
            yield from _field_faults(held, field, at)


def _field_faults(held: Any, field: FieldDescriptor, path: str) -> Iterator[FieldViolation]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        yield from _map_faults(held, field.message_type.fields_by_name["value"], path)
    elif field.is_repeated:
        if not isinstance(held, list):
            yield _fault(path, held, "a list")
            return
        for i, element in enumerate(held):
            yield from _value_faults(element, field, f"{path}[{i}]")
    else:
        yield from _value_faults(held, field, path)


def _map_faults(held: Any, value: FieldDescriptor, path: str) -> Iterator[FieldViolation]:
    if not isinstance(held, dict):
        yield _fault(path, held, "an object with a key for each entry")
        return
    for key, entry in held.items():
        yield from _value_faults(entry, value, f'{path}["{key}"]')


def _value_faults(held: Any, field: FieldDescriptor, path: str) -> Iterator[FieldViolation]:
    if field.message_type is not None:
        yield from shape_faults(held, field.message_type, path)
        return
    allowed = _scalar_rule(held, field)
    if allowed:
        yield _fault(path, held, allowed)


def _scalar_rule(held: Any, field: FieldDescriptor) -> str:
    """Return what is allowed where a value is not; empty where it is."""
    if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64):
        bits = 31 if field.cpp_type == field.CPPTYPE_INT32 else 63
        fits = _is_whole(held) and -(2**bits) <= int(held) < 2**bits
        return "" if fits else f"a whole number of {bits + 1} bits"
    if field.cpp_type == field.CPPTYPE_DOUBLE:
        return "" if _is_number(held) else "a number"
    if field.cpp_type == field.CPPTYPE_BOOL:
        return "" if isinstance(held, bool) else "true or false"
    if field.enum_type is not None:
        names = [value.name for value in field.enum_type.values]
        is_known = held in names if isinstance(held, str) else _is_whole(held)
        return "" if is_known else f"one of {', '.join(names)}"
    return "" if isinstance(held, str) else "text"


def _is_whole(held: Any) -> bool:
    if isinstance(held, str):
        return held.removeprefix("-").isdecimal() and held.isascii()
    return not isinstance(held, bool) and (isinstance(held, int) or (isinstance(held, float) and held.is_integer()))


def _is_number(held: Any) -> bool:
    if isinstance(held, str):
        try:
            float(held)
        except ValueError:
            return False
        return True
    return isinstance(held, int | float) and not isinstance(held, bool) and abs(held) < float("inf")


def _fault(path: str, held: Any, allowed: str) -> FieldViolation:
    text = repr(held)
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
    return FieldViolation(field=path, description=f"is {shown}, must be {allowed}")
