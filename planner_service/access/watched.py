"""Files that are read again when they change, whoever changes them and however.

They are small, so that what they hold is compared, every half second: an editor writes in place, others rename, and
Kubernetes swaps a link to a directory (``..data``), for which times and inodes of the files say little. To look at each
call instead would have those who call, known or not, decide how often the disk is read.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from planner_service.access.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

LOOK_S: Final = 0.5

_LARGEST_BYTES: Final = 2**20
_log = logging.getLogger(__name__)

T = TypeVar("T")
Contents = tuple[bytes, ...]


class Watched(Generic[T]):
    """What is made of files.

    Parameters
    ----------
    files
        Where they are, by the setting that says so.
    make
        Makes it of what they hold, in this order; raises `AccessError`.

    Raises
    ------
    AccessError
        They cannot be read, or nothing can be made of them.
    """

    def __init__(self, files: Mapping[str, Path], make: Callable[[Contents], T]) -> None:
        self._files = files
        self._make = make
        seen = self._read()
        if isinstance(seen, AccessError):
            raise seen
        self.value = make(seen)
        self._judged: Contents | str = seen
        self._seen: Contents | str = seen

    def look(self) -> bool:
        """Read the files; return whether `value` is another now. Reads from disk: for a thread.

        What is new is taken when it is the same twice in a row, as it may be half written. What cannot be used is
        logged once, and `value` stays.
        """
        found = self._read()
        seen = str(found) if isinstance(found, AccessError) else found
        is_new = seen == self._seen and seen != self._judged
        self._seen = seen
        if not is_new:
            return False
        self._judged = seen
        try:
            if isinstance(found, AccessError):
                raise found
            self.value = self._make(found)
        except AccessError as error:
            _log.error("what was there before stays in force: %s", error)
            return False
        _log.info("read again: %s", ", ".join(f"{name}={path}" for name, path in self._files.items()))
        return True

    def _read(self) -> Contents | AccessError:
        try:
            return tuple(_content(name, path) for name, path in self._files.items())
        except AccessError as error:
            return error


def _content(setting: str, path: Path) -> bytes:
    try:
        if not path.is_file() and path.exists():  # a pipe would be waited for
            raise AccessError(f"{setting}={path}: is no regular file")
        with path.open("rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise AccessError(f"{setting}={path}: cannot be read: {error.strerror}") from None
    if len(content) > _LARGEST_BYTES:
        raise AccessError(f"{setting}={path}: has more than {_LARGEST_BYTES} bytes")
    return content
