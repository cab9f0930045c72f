"""Shows that machine code is found by what it is made of, wherever it lies, and kept where it can be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from planner_service import kernel_cache
from planner_service.kernel_cache import (
    CACHE,
    PACKAGE,
    are_compiled,
    cache_folder,
    is_private,
    make_folder,
    mark_compiled,
)
from planner_service.kernel_target import KernelTarget


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with a kernel that takes a constant of another file, and a file that is none of its business."""
    search = tmp_path / "package" / "search"
    search.mkdir(parents=True)
    (search / "decoders.py").write_text("from planner_service.search.sizes import WORD\n\n\n@kernel\ndef f(): ...\n")
    (search / "sizes.py").write_text("WORD = 64\n")
    (search.parent / "cli.py").write_text("print()\n")
    return search.parent


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))


def deny(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Let nothing be written below some folders, to root either, as on a read-only disk."""
    access = os.access

    def asked(path: str | Path, mode: int) -> bool:
        denied = any(Path(path).is_relative_to(folder) for folder in folders)
        return not (mode & os.W_OK and denied) and access(path, mode)

    monkeypatch.setattr("os.access", asked)


@pytest.mark.parametrize("file", ["search/decoders.py", "search/sizes.py"])
def test_the_folder_follows_the_source_of_kernels_and_of_what_they_import(package: Path, file: str) -> None:
    first = cache_folder(package)
    (package / "cli.py").write_text("print(1)\n")
    assert cache_folder(package) == first
    (package / file).write_text((package / file).read_text() + "# changed\n")
    assert cache_folder(package) != first
    assert cache_folder(package).parent == package / "__pycache__"


def test_the_folder_follows_neither_times_nor_places(package: Path, tmp_path: Path) -> None:
    """Layers of an image keep whole seconds, and a copy is as good as what it was made from."""
    first = cache_folder(package)
    mark = first / "complete"
    mark.parent.mkdir(parents=True)
    mark.touch()
    for path in package.rglob("*.py"):
        os.utime(path, ns=(1, 1))
    moved = Path(shutil.copytree(package, tmp_path / "elsewhere"))
    assert cache_folder(moved).name == cache_folder(package).name == first.name
    assert are_compiled(cache_folder(moved))


def test_the_folder_follows_the_target_and_the_compiler(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {cache_folder(package, KernelTarget(cpu=cpu)).name for cpu in ("x86-64-v3", "x86-64-v2")}
    assert len(names) == 2
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "0")
    assert cache_folder(package, KernelTarget(cpu="x86-64-v3")).name not in names


def test_every_file_with_a_kernel_and_its_constants_is_known() -> None:
    sources = kernel_cache.kernel_sources()
    assert {"compiling.py", "search/decoders.py", "search/admission.py", "baselines/paper/arrays.py"} <= set(sources)
    assert "settings.py" not in sources
    assert all((PACKAGE / name).read_bytes() == source for name, source in sources.items())


def test_code_can_be_put_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "chosen"))
    assert cache_folder() == tmp_path / "chosen" / CACHE.name


def test_a_folder_that_has_all_is_taken_though_nothing_can_be_written_there(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cache_folder(package)
    make_folder(first)
    deny(monkeypatch, package)
    assert cache_folder(package).parent.parent.name == "user"
    mark_compiled(first)
    assert cache_folder(package) == first


def test_without_a_better_one_a_private_folder_for_temporary_files_is_taken(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deny(monkeypatch, package, tmp_path / "user")
    found = cache_folder(package)
    assert found.parent == tmp_path / "tmp" / f"dip-planner-{os.getuid()}"
    assert kernel_cache.is_temporary(found)
    make_folder(found)
    assert is_private(found.parent)
    assert found.parent.stat().st_mode & 0o777 == 0o700


def test_a_temporary_folder_that_others_can_write_is_not_taken(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machine code is loaded from there: whoever put it there would run what they like."""
    deny(monkeypatch, package, tmp_path / "user")
    theirs = cache_folder(package)
    theirs.mkdir(parents=True)
    mark_compiled(theirs)
    theirs.parent.chmod(0o777)
    assert cache_folder(package) != theirs
    with pytest.raises(PermissionError, match="another user's"):
        make_folder(theirs)


def test_a_user_without_a_home_has_one_folder_less(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a number that no password file knows, in a container."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    deny(monkeypatch, package)
    assert kernel_cache.is_temporary(cache_folder(package))


def test_no_compiler_is_loaded_to_know_whether_kernels_are_compiled() -> None:
    code = "import sys, planner_service.kernel_cache as cache; cache.are_compiled(); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(run.stdout.split()) & {"numba", "numpy", "llvmlite", "ortools"}


def test_the_set_up_learns_from_the_exit_code_whether_kernels_are_compiled(tmp_path: Path) -> None:
    ask = [sys.executable, "-m", "planner_service.kernel_cache"]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    assert subprocess.run(ask, env=environment, check=False).returncode == 1
    make_folder(tmp_path / CACHE.name)
    mark_compiled(tmp_path / CACHE.name)
    assert subprocess.run(ask, env=environment, check=False).returncode == 0
