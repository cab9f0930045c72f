"""Shows that machine code is looked for where it belongs to the source as it is, without loading a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from planner_service.kernel_cache import CACHE, cache_folder

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_cache_folder_follows_the_source_of_every_kernel(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "search").mkdir(parents=True)
    kernels, plain = package / "search" / "decoders.py", package / "cli.py"
    kernels.write_text("@kernel\n")
    plain.write_text("print()\n")
    first = cache_folder(package)
    plain.write_text("print(1)\n")
    assert cache_folder(package) == first
    kernels.write_text("@inlined\n")
    assert cache_folder(package) != first
    assert cache_folder(package).parent == package / "__pycache__"


def test_the_cache_folder_follows_what_numba_goes_by(tmp_path: Path) -> None:
    """A tree that was copied or checked out anew is compiled anew by numba, whatever is in its cache."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "kernels.py").write_text("@kernel\n")
    first = cache_folder(package)
    os.utime(package / "kernels.py", ns=(1, 1))
    written = cache_folder(package)
    assert written != first
    assert cache_folder(package.rename(tmp_path / "moved")).name not in (first.name, written.name)


def test_the_cache_can_be_put_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert cache_folder() == tmp_path / CACHE.name


def test_no_compiler_is_loaded_to_know_whether_kernels_are_compiled() -> None:
    code = "import sys, planner_service.kernel_cache as cache; cache.are_compiled(); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(run.stdout.split()) & {"numba", "numpy", "llvmlite", "ortools"}
