"""Where the machine code of kernels is kept, and whether it is there; known without loading a compiler.

The folder is named after everything that the code is made of: the source of all kernels together, as numba alone would
go on using a kernel whose callee, in another file, has changed; the versions of what compiles them; and the CPUs that
they are for. Neither where files lie nor when they were written counts, so that a folder is as good after a copy, in an
image's layer or on a read-only disk as where it was made.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import os.path
import re
import stat
import sys
import tempfile
from pathlib import Path
from typing import Final

from planner_service.kernel_target import KernelTarget, kernel_target

CACHE_DIR: Final = "NUMBA_CACHE_DIR"

PACKAGE: Final = Path(__file__).parent
TARGET: Final = kernel_target()

_COMPILERS = "numba", "llvmlite", "numpy"
_KERNEL = re.compile(rb"^@(kernel|inlined|bare_kernel)$", re.MULTILINE)
_IMPORT = re.compile(rb"^(?:from|import) planner_service\.([\w.]+)", re.MULTILINE)
_COMPLETE = "complete"
"""A file in the folder once all kernels are in it."""


def kernel_sources(package: Path = PACKAGE) -> dict[str, bytes]:
    """Files whose source kernels depend on, by their path in the package: those with kernels, and what these import.

    The latter as a kernel takes constants of other files into its machine code.
    """
    found: dict[str, bytes] = {}
    waiting = [path for path in package.rglob("*.py") if _KERNEL.search(path.read_bytes())]
    while waiting:
        path = waiting.pop()
        name = path.relative_to(package).as_posix()
        if name in found:
            continue
        found[name] = path.read_bytes()
        if name != "compiling.py":  # what that one imports says where code is kept, not what it is
            waiting += filter(Path.is_file, (_file(package, module) for module in _IMPORT.findall(found[name])))
    return dict(sorted(found.items()))


def _file(package: Path, module: bytes) -> Path:
    path = package.joinpath(*module.decode().split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def kernels_digest(package: Path = PACKAGE) -> str:
    """Digest of what compiles the kernels and of every file that they depend on."""
    digest = hashlib.sha256(" ".join(importlib.metadata.version(name) for name in _COMPILERS).encode())
    for name, source in kernel_sources(package).items():
        digest.update(f"\0{name}\0{len(source)}\0".encode())
        digest.update(source)
    return digest.hexdigest()[:16]


def cache_folder(package: Path = PACKAGE, target: KernelTarget = TARGET) -> Path:
    """Where machine code is kept: the first folder that has it all, or else the first that can be written.

    That is below ``NUMBA_CACHE_DIR`` where it is set; else beside the package, else in the user's own cache. Where none
    can be written it is a folder for temporary files, which only this user can write.
    """
    name = f"kernels-{kernels_digest(package)}-{sys.implementation.cache_tag}-{target.label}"
    folders = [parent / name for parent in _parents(package)]
    complete = [folder for folder in folders if _is_complete(folder)]
    writable = [folder for folder in folders if _can_be_made(folder)]
    return (complete + writable + folders)[0]


def _parents(package: Path) -> list[Path]:
    chosen = os.environ.get(CACHE_DIR)
    kept = [Path(chosen)] if chosen else [package / "__pycache__", *_user_cache()]
    return [*kept, *([temporary_folder()] if is_private(temporary_folder()) else [])]


def _user_cache() -> list[Path]:
    chosen = os.environ.get("XDG_CACHE_HOME")
    try:
        return [Path(chosen or Path.home() / ".cache") / "dip-planner"]
    except RuntimeError:  # a user without a home, as containers have them
        return []


def temporary_folder() -> Path:
    """Folder of this user for code that nothing else keeps."""
    try:
        parent = Path(tempfile.gettempdir())
    except FileNotFoundError:  # nothing can be written at all
        parent = Path("/tmp")
    return parent / f"dip-planner-{os.getuid()}"


def is_private(folder: Path) -> bool:
    """Whether nobody else can have put anything into a folder: machine code that is loaded is run."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _is_complete(folder: Path) -> bool:
    return os.access(folder / _COMPLETE, os.R_OK)


def _can_be_made(folder: Path) -> bool:
    """Whether files can be written into a folder that may not be there yet."""
    there = next(parent for parent in (folder, *folder.absolute().parents) if os.path.exists(parent))
    return os.access(there, os.W_OK | os.X_OK)


def make_folder(folder: Path) -> None:
    """Make a folder of the cache.

    Raises
    ------
    OSError
        Where it cannot be made or written, or others could write it.
    """
    if folder.parent == temporary_folder():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_private(folder.parent):
            raise PermissionError(f"{folder.parent} is another user's")
    folder.mkdir(parents=True, exist_ok=True)


def is_temporary(folder: Path) -> bool:
    """Whether what is kept in a folder may be gone with the next start."""
    return folder.parent == temporary_folder()


CACHE: Final = cache_folder()


def are_compiled(cache: Path = CACHE) -> bool:
    """Whether all kernels are in the cache, as they are in the source."""
    return _is_complete(cache)


def mark_compiled(cache: Path) -> None:
    """Say that all kernels are in the cache."""
    (cache / _COMPLETE).touch()


if __name__ == "__main__":
    sys.exit(not are_compiled())
