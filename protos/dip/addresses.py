"""What hosts may be called, and how long the path of a UNIX socket may be, for listening and for connecting alike."""

from __future__ import annotations

import os
import re
from typing import Final

MOST_PATH_BYTES: Final = 105
"""What gRPC takes: Linux's ``sun_path`` has 108 bytes, the last is 0, and gRPC (1.83) counts the two slashes of
``unix://`` as well."""

_MOST_HOST_CHARACTERS: Final = 253
_LABELS: Final = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")


def check_host(host: str) -> None:
    """Refuse a name that no resolver looks up; Python's raises a UnicodeError for some of them.

    Parameters
    ----------
    host
        A name or an IPv4 address.

    Raises
    ------
    ValueError
        Saying what is allowed (RFC 1035, and underscores, which names of containers have).
    """
    if len(host) > _MOST_HOST_CHARACTERS or not _LABELS.fullmatch(host):
        raise ValueError(
            f"{host!r} is no name of a host: that is letters, digits, - and _ in parts of 1 to 63, with dots between "
            f"them, {_MOST_HOST_CHARACTERS} in all"
        )


def check_socket_path(path: str) -> None:
    """Refuse a path that no socket can be bound to, nor connected to.

    Raises
    ------
    ValueError
        It is too long; the message says how long it is, and what is allowed.
    """
    size = len(os.fsencode(path))
    if size > MOST_PATH_BYTES:
        raise ValueError(
            f"a socket's path may have at most {MOST_PATH_BYTES} bytes, {path} has {size}: choose a shorter one"
        )
