"""How much a call does, in lines of Python that it runs: the same on any machine, however busy."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def lines_run(call: Callable[[], object]) -> int:
    """Return how many lines a call runs, every turn of every loop counted."""
    lines = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Callable[[FrameType, str, object], object]:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines
