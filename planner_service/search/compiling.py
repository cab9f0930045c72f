"""How the search's kernels are compiled: cached, without the interpreter's lock, and in one piece where it matters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from numba import njit

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])

_WITHOUT_COUNTS: dict[str, Any] = {"_nrt": False}
"""Not among numba's documented options; `tests/planner_service/search/test_compiling.py` fails if it goes."""


def kernel(function: F) -> F:
    """Compile a function that Python, or another kernel, calls."""
    return cast("F", njit(cache=True, nogil=True)(function))


def inlined(function: F) -> F:
    """Make a function a part of the bare kernels that call it: a call would cost more than most of them do."""
    return cast("F", njit(nogil=True, forceinline=True, **_WITHOUT_COUNTS)(function))


def bare_kernel(function: F) -> F:
    """Compile a function that allocates nothing, without counting references to arrays.

    Counting takes several times as long as list scheduling itself, as the arrays come in tuples.
    """
    return cast("F", njit(cache=True, nogil=True, **_WITHOUT_COUNTS)(function))
