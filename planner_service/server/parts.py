"""How many messages stand in a request's bytes, counted before anything is made of them.

Two bytes are enough for an empty message inside a request, and a hundred are taken for it once it is decoded, in one go
that nothing else runs beside: 64 MiB of such bytes would hold the event loop up for seconds, and take gigabytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from google.protobuf.message import Message

_MORE: Final = 0x80

_Kind = dict[int, "_Kind"]
"""Fields that hold messages, by their numbers, each with such fields of its own."""

_known: dict[str, _Kind] = {}


def has_more_parts(request: bytes, of: type[Message], most: int) -> bool:
    """Whether a request holds more messages than so many; what is no message at all, decoding finds out.

    Takes time for each field: for a thread.

    Parameters
    ----------
    request
        Serialized.
    of
        What it should be.
    most
        How many may be in it, at any depth.
    """
    try:
        return _count(request, _kind(of.DESCRIPTOR), most) > most
    except IndexError:
        return False


def _kind(of: Any) -> _Kind:  # protobuf has two kinds of descriptors, and the stubs of one
    found = _known.get(of.full_name)
    if found is None:
        found = _known[of.full_name] = {}  # first: messages may hold their like
        for field in of.fields:
            if field.message_type is not None:
                found[field.number] = _kind(field.message_type)
    return found


def _count(request: bytes, kind: _Kind, most: int) -> int:
    count, at, end = 0, 0, len(request)
    around: list[tuple[int, _Kind]] = []  # where the messages end that this one is in, and what they are
    while count <= most:
        if at >= end:
            if not around:
                break
            end, kind = around.pop()
            continue
        tag, at = request[at], at + 1
        if tag & _MORE:
            tag, at = _varint(request, at - 1)
        match tag & 7:
            case 2:  # so many bytes
                size, at = request[at], at + 1
                if size & _MORE:
                    size, at = _varint(request, at - 1)
                inner = kind.get(tag >> 3)
                if inner is None:
                    at += size
                    continue
                count += 1
                if size and inner:
                    around.append((end, kind))
                    end, kind = at + size, inner
                else:
                    at += size
            case 0:  # a number
                while request[at] & _MORE:
                    at += 1
                at += 1
            case 1:  # 64 bits
                at += 8
            case 5:  # 32 bits
                at += 4
            case _:  # a group's begin or end
                pass
    return count


def _varint(request: bytes, at: int) -> tuple[int, int]:
    """Value of a number of several bytes, and where it ends."""
    value = shift = 0
    while request[at] & _MORE:
        value |= (request[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | request[at] << shift, at + 1
