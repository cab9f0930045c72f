"""HTTP/2 frames by hand, for clients that do what no library lets them do.

RFC 9113 describes the frames, RFC 7541 the headers, which are all written as literals here: no table, no Huffman code.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW_SIZE: Final = 4
CANCEL: Final = 8

LARGEST_FRAME: Final = 2**14

_DEFAULT_WINDOW: Final = 2**16 - 1
_PATIENCE_S: Final = 240.0
_HEADER_BYTES: Final = 9


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def settings(values: Mapping[int, int]) -> bytes:
    """The frame that says how one likes to be spoken to."""
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", name, value) for name, value in values.items()))


def headers(stream: int, path: str, extra: Sequence[tuple[str, str]] = (), *, flags: int = END_HEADERS) -> bytes:
    """The frame that begins a gRPC call."""
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *extra,
    ]
    return frame(HEADERS, flags, stream, b"".join(_literal(name) + _text(value) for name, value in fields))


def message(stream: int, request: bytes) -> bytes:
    """The frame with a call's one request, of 16 KiB at most, and its end."""
    return frame(DATA, END_STREAM, stream, b"\0" + len(request).to_bytes(4, "big") + request)


def call(stream: int, path: str, request: bytes, extra: Sequence[tuple[str, str]] = ()) -> bytes:
    """A whole call."""
    return headers(stream, path, extra) + message(stream, request)


def reset(stream: int) -> bytes:
    """The frame that gives a call up."""
    return frame(RST_STREAM, 0, stream, CANCEL.to_bytes(4, "big"))


def ping() -> bytes:
    """The frame that wants an answer."""
    return frame(PING, 0, 0, bytes(8))


def window(stream: int, num_bytes: int) -> bytes:
    """The frame that lets a server send more: on one stream, or (0) on all together."""
    return frame(WINDOW_UPDATE, 0, stream, num_bytes.to_bytes(4, "big"))


class RawConnection:
    """One TCP connection, closed with the block that it is used in."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_PATIENCE_S)
        self._received = b""
        self._windows: dict[int, int] = {}  # what the other side has granted, beside what it granted at first
        self._first_window = _DEFAULT_WINDOW

    def greet(self, values: Mapping[int, int] | None = None) -> None:
        """Begin to speak HTTP/2, and wait until the other side has heard the settings."""
        self.send(PREFACE + settings(values or {}))
        for kind, flags, _, _ in self.frames():
            if kind == SETTINGS and flags & ACK:
                return

    def send(self, sent: bytes) -> None:
        """Send bytes, as fast as the other side takes them."""
        self._socket.sendall(sent)

    def frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Read frames until the other side hangs up: kind, flags, stream, payload.

        Settings and pings are acknowledged, and what may be sent is noted.
        """
        while len(found := self._read(_HEADER_BYTES)) == _HEADER_BYTES:
            kind, flags, stream = found[3], found[4], int.from_bytes(found[5:9], "big") & 0x7FFFFFFF
            payload = self._read(int.from_bytes(found[:3], "big"))
            if kind in (SETTINGS, PING) and not flags & ACK:
                self.send(frame(kind, ACK, 0, payload if kind == PING else b""))
            if kind == SETTINGS:
                values = dict(struct.iter_unpack(">HI", payload))
                self._first_window = values.get(INITIAL_WINDOW_SIZE, self._first_window)
            if kind == WINDOW_UPDATE:
                self._windows[stream] = self._windows.get(stream, 0) + int.from_bytes(payload, "big")
            yield kind, flags, stream, payload

    def may_send(self, stream: int) -> int:
        """Bytes of data that the other side takes of a stream now, at most one frame."""
        of_all = _DEFAULT_WINDOW + self._windows.get(0, 0)
        return max(0, min(of_all, self._first_window + self._windows.get(stream, 0), LARGEST_FRAME))

    def send_data(self, stream: int, data: bytes) -> None:
        """Send data that it takes."""
        for which in (0, stream):
            self._windows[which] = self._windows.get(which, 0) - len(data)
        self.send(frame(DATA, 0, stream, data))

    def wait_for_end(self) -> bool:
        """Read on until the other side hangs up; whether it does in time."""
        try:
            while self._read(1):
                pass
        except TimeoutError:
            return False
        return True

    def set_patience(self, seconds: float) -> None:
        """Say how long to wait for bytes."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, count: int) -> bytes:
        """Read so many bytes; fewer where the other side hangs up."""
        while len(self._received) < count:
            try:
                found = self._socket.recv(2**16)
            except ConnectionResetError:
                found = b""
            if not found:
                break
            self._received += found
        taken, self._received = self._received[:count], self._received[count:]
        return taken


def _literal(name: str) -> bytes:
    return b"\0" + _text(name)


def _text(text: str) -> bytes:
    encoded = text.encode(errors="surrogateescape")  # so that a text can stand for any bytes
    return _length(len(encoded)) + encoded


def _length(number: int) -> bytes:
    """An integer of HPACK with a prefix of seven bits."""
    if number < 127:
        return bytes((number,))
    number, found = number - 127, b"\x7f"
    while number >= 128:
        found, number = found + bytes((number % 128 + 128,)), number // 128
    return found + bytes((number,))
