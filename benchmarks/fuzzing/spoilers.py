"""Bytes that are no message, or hardly one: what a serialized request becomes on its way from a broken client."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

_VARINT, _FIXED64, _LENGTH_DELIMITED, _GROUP, _END_GROUP, _FIXED32 = range(6)


def spoil(serialized: bytes, rng: random.Random) -> bytes:
    """Return what is left of a serialized message after one way, or a few, of spoiling it."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        serialized = rng.choice(SPOILERS)(serialized, rng)
    return serialized


def noise(_serialized: bytes, rng: random.Random) -> bytes:
    """Bytes at random, a few or many."""
    return rng.randbytes(rng.choice((0, 1, 2, 3, 5, 10, 40, 300, 5_000)))


def cut(serialized: bytes, rng: random.Random) -> bytes:
    """End anywhere."""
    return serialized[: rng.randrange(len(serialized) + 1)]


def flip(serialized: bytes, rng: random.Random) -> bytes:
    """Turn some bits over."""
    spoiled = bytearray(serialized)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if spoiled:
            spoiled[rng.randrange(len(spoiled))] ^= 1 << rng.randrange(8)
    return bytes(spoiled)


def splice(serialized: bytes, rng: random.Random) -> bytes:
    """Take a piece out, or put it in a second time."""
    begin = rng.randrange(len(serialized) + 1)
    end = min(len(serialized), begin + rng.choice((1, 2, 8, 64)))
    if rng.random() < 0.5:
        return serialized[:begin] + serialized[end:]
    return serialized[:end] + serialized[begin:end] + serialized[end:]


def repeat(serialized: bytes, rng: random.Random) -> bytes:
    """Say everything again: single fields come twice, which merges messages, and lists grow."""
    return serialized * rng.choice((2, 3, 9))


def wrong_wire_type(serialized: bytes, rng: random.Random) -> bytes:
    """Add a field of the contract with the wire type of another."""
    wire_type = rng.choice((_VARINT, _FIXED64, _LENGTH_DELIMITED, _GROUP, _END_GROUP, _FIXED32, 6, 7))
    return _place(serialized, _tag(rng.randrange(0, 12), wire_type) + rng.randbytes(rng.randrange(12)), rng)


def huge_length(serialized: bytes, rng: random.Random) -> bytes:
    """Announce far more bytes than there are."""
    length = rng.choice((2**7, 2**16, 2**31 - 1, 2**31, 2**32, 2**63, 2**64 - 1))
    return _place(serialized, _tag(rng.randrange(1, 12), _LENGTH_DELIMITED) + _varint(length), rng)


def overlong_varint(serialized: bytes, rng: random.Random) -> bytes:
    """A number of more bytes than any number has, or one that only looks long."""
    number = rng.choice((b"\xff" * 11, b"\x80" * 9 + b"\x01", b"\x80" * 10 + b"\x01", b"\xff" * 40))
    return _place(serialized, _tag(rng.randrange(1, 12), _VARINT) + number, rng)


def nested(serialized: bytes, rng: random.Random) -> bytes:
    """Groups, or messages, inside each other deeper than any parser goes."""
    depth = rng.choice((10, 99, 101, 1_000, 20_000))
    if rng.random() < 0.5:
        return serialized + _tag(rng.randrange(1, 12), _GROUP) * depth
    inner = b""
    for _ in range(min(depth, 300)):
        inner = _tag(rng.randrange(1, 4), _LENGTH_DELIMITED) + _varint(len(inner)) + inner
    return serialized + inner


def unknown_fields(serialized: bytes, rng: random.Random) -> bytes:
    """Add fields that the contract does not have, which a newer client may know."""
    fields = [
        _tag(rng.choice((13, 99, 19_000, 2**29 - 1)), _LENGTH_DELIMITED) + _varint(3) + b"new",
        _tag(1_000, _VARINT) + _varint(2**64 - 1),
        _tag(1_001, _FIXED32) + bytes(4),
    ]
    return _place(serialized, b"".join(rng.sample(fields, rng.randrange(1, 4))), rng)


def bad_text(serialized: bytes, rng: random.Random) -> bytes:
    """A string that is no UTF-8."""
    text = rng.choice((b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"fuzz-0\xc3"))
    return serialized + _tag(rng.randrange(1, 3), _LENGTH_DELIMITED) + _varint(len(text)) + text


SPOILERS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    noise,
    cut,
    flip,
    flip,
    splice,
    repeat,
    wrong_wire_type,
    huge_length,
    overlong_varint,
    nested,
    unknown_fields,
    bad_text,
)


def _place(serialized: bytes, field: bytes, rng: random.Random) -> bytes:
    """Put a field before or after all others, where it is read as one."""
    return field + serialized if rng.random() < 0.3 else serialized + field


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
