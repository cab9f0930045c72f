"""How kernels are compiled: kept, without the interpreter's lock, and in one piece where it matters."""

from __future__ import annotations

import functools
import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba
from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from planner_service.kernel_cache import CACHE, TARGET, make_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger(__name__)

WITHOUT_COUNTS: dict[str, Any] = {"_nrt": False}
"""Not among numba's documented options; `tests/planner_service/test_compiling.py` fails if it goes."""

# numba reads it when it first compiles: before any of our kernels is defined.
vars(numba.config).update(CPU_NAME=TARGET.cpu, CPU_FEATURES=TARGET.features)


def kernel(function: F) -> F:
    """Compile a function that Python, or another kernel, calls."""
    return _kept(function)


def inlined(function: F) -> F:
    """Make a function a part of the bare kernels that call it: a call would cost more than most of them do."""
    return cast("F", njit(nogil=True, forceinline=True, **WITHOUT_COUNTS)(function))


def bare_kernel(function: F) -> F:
    """Compile a function that allocates nothing, without counting references to arrays.

    Counting takes several times as long as list scheduling itself, as the arrays come in tuples.
    """
    return _kept(function, **WITHOUT_COUNTS)


def _kept(function: F, **options: Any) -> F:
    dispatcher = njit(nogil=True, **options)(function)
    dispatcher._cache = KernelCache(function)  # what cache=True does, with numba's own folders
    return cast("F", dispatcher)


class _Locator(_CacheLocator):
    """Finds a kernel by its module's name and by source alone: see `kernel_cache`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._py_file = function.__code__.co_filename  # numba names it in warnings
        self._module = function.__module__

    @classmethod
    def from_function(cls, function: Callable[..., Any], _file: str) -> _Locator:
        """Take every function: none is left to a folder of numba's."""
        return cls(function)

    def ensure_cache_path(self) -> None:
        """Make the folder, before the first write to it; reading needs none."""
        make_folder(CACHE)

    def get_cache_path(self) -> str:
        """The folder of all kernels."""
        return str(CACHE)

    def get_source_stamp(self) -> str:
        """Digest of the file: a kernel outside of the package, as in a test, is not a part of the folder's name."""
        return hashlib.sha256(Path(self._py_file).read_bytes()).hexdigest()

    def get_disambiguator(self) -> str:
        """What tells kernels of one name apart."""
        return self._module


class _KernelCacheImpl(CompileResultCacheImpl):
    def __init__(self, function: Callable[..., Any]) -> None:
        locators: list[Any] = [_Locator]
        self._locator_classes = locators
        super().__init__(function)


class KernelCache(FunctionCache):
    """Machine code of one kernel in the folder; a folder that cannot be used costs time, never a plan."""

    _impl_class = _KernelCacheImpl

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Read what is kept, if any; None compiles it."""
        try:
            return super().load_overload(signature, target)
        except OSError as error:
            _warn_once("kernels are compiled, as what is kept of them in %s cannot be read: %s", error.strerror)
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep what was compiled, where that can be."""
        try:
            super().save_overload(signature, compiled)
        except OSError as error:
            _warn_once("machine code of kernels is used, and not kept in %s: %s", error.strerror)


@functools.cache
def _warn_once(text: str, reason: str | None) -> None:
    """Say once what holds for all kernels."""
    _log.warning(text, CACHE, reason)
