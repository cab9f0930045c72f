"""Patience with what other threads and processes bring about, and nothing announces."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 240.0
"""How long a test waits before it fails: below the limit of a whole test, and far beyond a busy machine's delays."""

_POLL_S = 0.02


def until(condition: Callable[[], object], *, told: Callable[[], str] = lambda: "it did not come to pass") -> None:
    """Wait until a condition holds.

    Parameters
    ----------
    condition
        Looked at again and again.
    told
        What the failure of the test tells where it never does.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, told()
        time.sleep(_POLL_S)
