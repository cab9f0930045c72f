"""The bearer token: where it is read, and in which metadata it travels."""

from __future__ import annotations

from typing import Final

from dip.connecting.files import ClientFilesError, read
from dip.connecting.variables import TOKEN_FILE

MAX_TOKEN_BYTES: Final = 4096


def read_token(path: str) -> str:
    """Read a token; blanks and line ends around it are not part of it.

    Raises
    ------
    ClientFilesError
        The file cannot be read or holds no token. The message never shows what it holds.
    """
    held = read(TOKEN_FILE, path, at_most=MAX_TOKEN_BYTES).strip()
    if len(held.splitlines()) > 1:
        raise ClientFilesError(f"{TOKEN_FILE}: {path!r}; must hold one line, holds {len(held.splitlines())}")
    for position, byte in enumerate(held, start=1):
        if not 0x21 <= byte <= 0x7E:
            raise ClientFilesError(
                f"{TOKEN_FILE}: {path!r}; must hold visible ASCII characters alone; character {position} is none"
            )
    return held.decode("ascii")


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call that carries the token."""
    return (("authorization", f"Bearer {token}"),)
