"""How long the path of a UNIX socket may be."""

from __future__ import annotations

import os
from typing import Final

MOST_BYTES: Final = 105
"""What gRPC takes: Linux's ``sun_path`` has 108 bytes, the last is 0, and gRPC (1.83) counts the two slashes of
``unix://`` as well."""


def check_socket_path(path: str) -> None:
    """Refuse a path that no socket can be bound to, nor connected to.

    Raises
    ------
    ValueError
        It is too long; the message says how long it is, and what is allowed.
    """
    size = len(os.fsencode(path))
    if size > MOST_BYTES:
        raise ValueError(
            f"a socket's path may have at most {MOST_BYTES} bytes, {path} has {size}: choose a shorter one"
        )
