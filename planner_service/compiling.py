"""How kernels are compiled: cached, without the interpreter's lock, and in one piece where it matters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba
from numba import njit

from planner_service.kernel_cache import CACHE

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])

WITHOUT_COUNTS: dict[str, Any] = {"_nrt": False}
"""Not among numba's documented options; `tests/planner_service/test_compiling.py` fails if it goes."""

# numba reads it when a kernel is defined: before any of ours is.
vars(numba.config)["CACHE_DIR"] = str(CACHE)


def kernel(function: F) -> F:
    """Compile a function that Python, or another kernel, calls."""
    return cast("F", njit(cache=True, nogil=True)(function))


def inlined(function: F) -> F:
    """Make a function a part of the bare kernels that call it: a call would cost more than most of them do."""
    return cast("F", njit(nogil=True, forceinline=True, **WITHOUT_COUNTS)(function))


def bare_kernel(function: F) -> F:
    """Compile a function that allocates nothing, without counting references to arrays.

    Counting takes several times as long as list scheduling itself, as the arrays come in tuples.
    """
    return cast("F", njit(cache=True, nogil=True, **WITHOUT_COUNTS)(function))
