"""Messages of any type, drawn from its descriptor: every field may hold what nobody would send."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random

    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message

_SMALL: Final = (0, 0, 1, 1, 2, 3, 5, 8, 64, -1)
_INT32: Final = (*_SMALL, 1_000, 65_536, 65_537, 10_001, 2**31 - 1, 2**31 - 2, -(2**31))
_INT64: Final = (*_INT32, 2**31, 2**32, 2**53 - 1, 2**53, 2**53 + 1, 2**61, 2**62, 2**63 - 1, -(2**63))
_DOUBLES: Final = (0.0, -0.0, 1.0, 0.5, 3.75, -1.0, 5e-324, 1e-300, 1e12, 1e300, math.inf, -math.inf, math.nan)
_TEXTS: Final = (
    *("", "vision", "language", "store", "recompute", "offload"),
    *("*", "fuzz-*", "[a-z]", "{fuzz-0}", "fuzz-0:1", "?", "\\", "../../etc/passwd", "%s%n{}", "'; --", "a b\tc"),
    *("\x00", "fuzz-0\x00", "\r\n", "\x1b[31m", "\x7f", "\ufeff", "\u202e", "ü", "日本", "🜚" * 20, "e\u0301"),
    *("x" * 128, "x" * 129, "x" * 256, "x" * 257, "\x01" * 5_000, "y" * 20_000),
)
_BYTES: Final = (b"", b"\x00", bytes(31), bytes(32), b"\xff" * 32, bytes(33), bytes(100_000))
_LENGTHS: Final = (0, 1, 1, 2, 3, 5)
_RARE_LENGTHS: Final = (33, 70, 300)
_DEEPEST: Final = 12


def random_message(message_type: type[Message], rng: random.Random) -> Message:
    """Return a message whose fields, at every depth, hold anything that their types can."""
    message = message_type()
    _fill(message, rng, depth=0)
    return message


def change_fields(message: Message, rng: random.Random, changes: int) -> None:
    """Change as many fields, somewhere in the message: set, clear, repeat, drop or shuffle."""
    for _ in range(changes):
        _change_one(message, rng)


def _fill(message: Message, rng: random.Random, depth: int) -> None:
    odds = 0.85 if depth == 0 else 0.6
    for field in _fields(message.DESCRIPTOR).values():
        if rng.random() < odds:
            _fill_field(message, field, rng, depth)


def _fill_field(message: Message, field: FieldDescriptor, rng: random.Random, depth: int) -> None:
    held = getattr(message, field.name)
    if _is_map(field):
        for _ in range(rng.choice(_LENGTHS)):
            _set_entry(held, field, rng, depth)
    elif field.is_repeated:
        for _ in range(_length(field, rng, depth)):
            _append(held, field, rng, depth)
    elif field.message_type is None:
        setattr(message, field.name, _value(field, rng))
    elif depth < _DEEPEST:
        held.SetInParent()
        _fill(held, rng, depth + 1)


def _length(field: FieldDescriptor, rng: random.Random, depth: int) -> int:
    """Lists are short, so that messages stay small; now and then one is not."""
    if depth <= 2 and rng.random() < 0.02:
        return rng.choice(_RARE_LENGTHS) if field.message_type is None else rng.choice(_RARE_LENGTHS[:2])
    return rng.choice(_LENGTHS if depth <= 3 else _LENGTHS[:4])


def _append(held: Any, field: FieldDescriptor, rng: random.Random, depth: int) -> None:
    if field.message_type is None:
        held.append(_value(field, rng))
    else:
        added = held.add()
        if depth < _DEEPEST:
            _fill(added, rng, depth + 1)


def _set_entry(held: Any, field: FieldDescriptor, rng: random.Random, depth: int) -> None:
    entry = _fields(field.message_type)
    key, value = _value(entry["key"], rng), entry["value"]
    if value.message_type is None:
        held[key] = _value(value, rng)
    else:
        _fill(held[key], rng, depth + 1)


def _change_one(message: Message, rng: random.Random) -> None:
    fields = _fields(message.DESCRIPTOR)
    if not fields:
        return
    field = rng.choice(list(fields.values()))
    held = getattr(message, field.name)
    if _is_map(field):
        _change_map(held, field, rng)
    elif field.is_repeated:
        _change_list(held, field, rng)
    elif field.message_type is None:
        setattr(message, field.name, _value(field, rng))
    elif rng.random() < 0.05:
        message.ClearField(field.name)
    else:
        _change_one(held, rng)


def _change_map(held: Any, field: FieldDescriptor, rng: random.Random) -> None:
    value = _fields(field.message_type)["value"]
    if held and rng.random() < 0.2:
        del held[rng.choice(sorted(held))]
    elif held and value.message_type is not None and rng.random() < 0.8:
        _change_one(held[rng.choice(sorted(held))], rng)
    else:
        _set_entry(held, field, rng, depth=1)


def _change_list(held: Any, field: FieldDescriptor, rng: random.Random) -> None:
    roll = rng.random()
    if not held or roll < 0.1:
        _append(held, field, rng, depth=2)
    elif roll < 0.2:
        del held[rng.randrange(len(held)) :]
    elif roll < 0.3:
        held.extend(held[: rng.randrange(len(held)) + 1])
    elif roll < 0.4:
        order = list(held)
        rng.shuffle(order)
        del held[:]
        held.extend(order)
    elif field.message_type is None:
        held[rng.randrange(len(held))] = _value(field, rng)
    else:
        _change_one(rng.choice(held), rng)


def _value(field: FieldDescriptor, rng: random.Random) -> object:
    match field.type:
        case field.TYPE_INT32:
            return rng.choice(_INT32)
        case field.TYPE_INT64:
            return rng.choice(_INT64)
        case field.TYPE_DOUBLE:
            return rng.choice(_DOUBLES)
        case field.TYPE_BOOL:
            return rng.random() < 0.5
        case field.TYPE_ENUM:
            return rng.choice((-1, 0, 1, 2, 3, 4, 5, 8, 9, 2**31 - 1))
        case field.TYPE_BYTES:
            return rng.choice(_BYTES)
        case field.TYPE_STRING:
            return rng.choice(_TEXTS)
        case other:
            raise ValueError(f"{field.full_name}: type {other} is none of those that the contract uses")


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _fields(descriptor: Any) -> dict[str, FieldDescriptor]:
    """Fields by name: protobuf's own types know less of them."""
    return dict(descriptor.fields_by_name)
