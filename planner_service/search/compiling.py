"""How the search's kernels are compiled: cached, without the interpreter's lock, and in one piece where it matters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from numba import njit

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function that Python, or another kernel, calls."""
    return cast("F", njit(cache=True, nogil=True)(function))


def inlined(function: F) -> F:
    """Make a function a part of the kernels that call it: a call costs more than most of them do."""
    return cast("F", njit(inline="always")(function))


def bare_kernel(function: F) -> F:
    """Compile a function that allocates nothing without counting references to arrays.

    Counting takes several times as long as list scheduling itself, as the arrays come in tuples. The option is not
    part of numba's documented ones; `tests/planner_service/search/test_compiling.py` fails if it goes.
    """
    options: dict[str, Any] = {"_nrt": False}
    return cast("F", njit(cache=True, nogil=True, **options)(function))
