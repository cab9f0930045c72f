"""How kernels are compiled: cached, without the interpreter's lock, and in one piece where it matters.

Machine code is kept in a folder that is named after the source of all kernels together. numba alone looks at the file
that a kernel is in, and would go on using one whose callee, in another file, has changed.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba
from numba import njit

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])

WITHOUT_COUNTS: dict[str, Any] = {"_nrt": False}
"""Not among numba's documented options; `tests/planner_service/test_compiling.py` fails if it goes."""

_DECORATORS = b"@kernel", b"@inlined", b"@bare_kernel"

PACKAGE = Path(__file__).parent


def kernels_digest(package: Path = PACKAGE) -> str:
    """Digest of numba's version and of every file with kernels in it."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        if any(mark in source for mark in _DECORATORS) or path == package / "compiling.py":
            digest.update(source)
    return digest.hexdigest()[:16]


def cache_folder(package: Path = PACKAGE) -> Path:
    """Where machine code is kept: below ``NUMBA_CACHE_DIR``, else beside the package, else in the user's own cache."""
    name = f"kernels-{kernels_digest(package)}"
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen) / name
    beside = package / "__pycache__"
    if os.access(beside if beside.exists() else package, os.W_OK):
        return beside / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dip-planner" / name


CACHE = cache_folder()
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
