"""Spoils a message of any kind: changes one of its fields, somewhere, to a value that is more often nasty than not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message

SMALL_INTEGERS = (0, 1, -1, 2, 3, 7, 63)
INTEGERS = (*SMALL_INTEGERS, 2**31 - 1, -(2**31), 2**53, 2**62, 2**63 - 1, -(2**63))
DOUBLES = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e12, 1e300, math.inf, -math.inf, math.nan)
TEXTS = ("", "vision", "language", "store", "recompute", "audio", "\x00", "a\tb", "ü", "x" * 500)


def change_any_field(message: Message, rng: random.Random, integers: tuple[int, ...] = INTEGERS) -> None:
    """Change one field, somewhere in the message: set, clear, repeat or drop."""
    field = rng.choice(message.DESCRIPTOR.fields)
    held = getattr(message, field.name)
    if field.message_type and field.message_type.GetOptions().map_entry:
        _change_map(held, field, rng, integers)
    elif field.is_repeated:
        _change_list(held, field, rng, integers)
    elif not field.message_type:
        setattr(message, field.name, _value_of(field, rng, integers))
    elif rng.random() < 0.95:
        change_any_field(held, rng, integers)
    else:
        message.ClearField(field.name)


def _value_of(field: FieldDescriptor, rng: random.Random, integers: tuple[int, ...]) -> object:
    if field.type == field.TYPE_INT32:
        return rng.choice([n for n in integers if -(2**31) <= n < 2**31])
    if field.type == field.TYPE_INT64:
        return rng.choice(integers)
    if field.type == field.TYPE_DOUBLE:
        return rng.choice(DOUBLES)
    if field.type == field.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type == field.TYPE_ENUM:
        return rng.choice((0, 1, 5, 8, 77))
    if field.type == field.TYPE_BYTES:
        return rng.choice((b"", b"x", bytes(32)))
    return rng.choice(TEXTS)


def _change_map(held: Any, field: FieldDescriptor, rng: random.Random, integers: tuple[int, ...]) -> None:
    key, value = rng.choice(TEXTS[1:6]), field.message_type.fields_by_name["value"]
    if rng.random() < 0.2:
        held.clear()
    elif value.message_type:
        change_any_field(held[key], rng, integers)
    else:
        held[key] = _value_of(value, rng, integers)


def _change_list(held: Any, field: FieldDescriptor, rng: random.Random, integers: tuple[int, ...]) -> None:
    if held and rng.random() < 0.1:
        del held[rng.randrange(len(held)) :]
    elif held and rng.random() < 0.1:
        held.extend(held[: rng.randrange(len(held)) + 1])
    elif not field.message_type:
        held.append(_value_of(field, rng, integers))
    elif held and rng.random() < 0.9:
        change_any_field(rng.choice(held), rng, integers)
    else:
        held.add()
