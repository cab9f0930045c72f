"""Where the machine code of kernels is kept, and whether it is there; known without loading a compiler.

The folder is named after the source of all kernels together, as numba alone would go on using a kernel whose callee, in
another file, has changed; and after what numba itself goes by: where each file is, when it was written, and its size.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from pathlib import Path

_DECORATORS = b"@kernel", b"@inlined", b"@bare_kernel"

PACKAGE = Path(__file__).parent


def _has_kernels(source: bytes) -> bool:
    return any(mark in source for mark in _DECORATORS)


def kernels_digest(package: Path = PACKAGE) -> str:
    """Digest of numba's version and of every file with kernels in it, as it is and as numba knows it."""
    digest = hashlib.sha256(importlib.metadata.version("numba").encode())
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        if path == package / "compiling.py" or (path.name != "kernel_cache.py" and _has_kernels(source)):
            stamp = path.stat()
            digest.update(f"{path.absolute()} {stamp.st_mtime_ns} {stamp.st_size}".encode())
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


def are_compiled(cache: Path = CACHE) -> bool:
    """Whether all kernels are in the cache, as they are in the source."""
    return (cache / "complete").exists()
