"""The password of a Redis from a file, read at each connection: it is changed by changing the file."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from redis.credentials import CredentialProvider
from redis.exceptions import RedisError

from planner_service.store.records import StoreError

if TYPE_CHECKING:
    from pathlib import Path

SETTING: Final = "DIP_STORE_PASSWORD_FILE"

_LARGEST_BYTES: Final = 4096


class PasswordFileError(RedisError):
    """The file cannot be used now; it may be in the middle of being replaced."""


class PasswordFile(CredentialProvider):
    """Gives connections the password that a file holds when they are made.

    Parameters
    ----------
    path
        Where it is; a line end at the end is no part of the password.
    username
        Who connects; empty: Redis's default user.
    """

    def __init__(self, path: Path, *, username: str) -> None:
        self._path = path
        self._username = username
        self._given: dict[str, None] = {}  # the last one last

    def check(self) -> None:
        """Raise where the file cannot be used.

        Raises
        ------
        StoreError
        """
        try:
            self.get_credentials()
        except PasswordFileError as error:
            raise StoreError(str(error)) from None

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Read what a connection says of itself.

        Raises
        ------
        PasswordFileError
            Naming the file, and never what it holds.
        """
        password = self._read()
        self._given.pop(password, None)
        self._given[password] = None
        for oldest in list(self._given)[:-2]:
            del self._given[oldest]
        return (self._username, password) if self._username else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """As `get_credentials`, without keeping others waiting for a disk."""
        return await asyncio.to_thread(self.get_credentials)

    def hide(self, text: str) -> str:
        """Return a text without the passwords that were given last."""
        for password in self._given:
            text = text.replace(password, "***")
        return text

    def _read(self) -> str:
        if self._path.exists() and not self._path.is_file():  # a pipe would be waited for
            raise PasswordFileError(f"{SETTING}={self._path}: is no regular file")
        try:
            with self._path.open("rb") as file:
                held = file.read(_LARGEST_BYTES + 1)
            password = held.decode().removesuffix("\n").removesuffix("\r")
        except OSError as error:
            raise PasswordFileError(f"{SETTING}={self._path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise PasswordFileError(f"{SETTING}={self._path}: is no UTF-8 text") from None
        if not password or len(held) > _LARGEST_BYTES:
            raise PasswordFileError(f"{SETTING}={self._path}: must hold 1 to {_LARGEST_BYTES} bytes")
        return password
