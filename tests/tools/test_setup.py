"""Shows what the set-up answers to the mistakes that strangers make, and that it does nothing twice.

No test installs anything: each interpreter here is a script that answers as a real one in that state would.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
NEEDED = ("pyproject.toml", "constraints.txt", "Makefile", "tools/setup.sh")
FILE_COMMANDS = ("cat", "chmod", "df", "dirname", "find", "mkdir", "rm", "touch")
COMMANDS = (*FILE_COMMANDS, "sh", "awk", "cksum", "grep", "sort", "uname", "xargs")
OLD_PYTHON = 'case "$2" in *exit*) exit 1 ;; *) echo 3.8 ;; esac'
NO_VENV = 'case "$2" in *ensurepip*) exit 1 ;; *print*) echo 3.11 ;; esac'
# Makes a .venv whose pip is recorded, and fails where the test says so.
WORKING = """\
case "$*" in
    *print*) echo 3.12 ;;
    "-m venv"*)
        rm -rf .venv; mkdir -p .venv/bin .venv/lib
        echo "command = $PWD/.venv" >.venv/pyvenv.cfg
        cat "$0" >.venv/bin/python; chmod +x .venv/bin/python ;;
    *kernel_cache*) [ -f kernels.compiled ] ;;
    *warmup*) echo compiled >>kernels.log; touch kernels.compiled ;;
    *"pip install"*) echo "$*" >>pip.log
        case "$*" in
            *--dry-run*) [ -z "${NO_NETWORK:-}" ] ;;
            *) [ -z "${NO_ROOM:-}" ] && touch .venv/bin/dip && chmod +x .venv/bin/dip ;;
        esac ;;
esac"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files that a set-up reads, and a PATH of no Python at all."""
    for name in NEEDED:
        target = tmp_path / "clone" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    (tmp_path / "bin").mkdir()
    for command in COMMANDS:
        (tmp_path / "bin" / command).symlink_to(str(shutil.which(command)))
    return tmp_path / "clone"


def interpreter(clone: Path, name: str, answers: str) -> None:
    path = clone.parent / "bin" / name
    path.write_text(f"#!/bin/sh\n{answers}\n", encoding="utf-8")
    path.chmod(0o755)


def set_up(clone: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": str(clone.parent / "bin"), **environment}
    return subprocess.run(
        ["sh", "tools/setup.sh"],
        cwd=clone,
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def pip_runs(clone: Path) -> list[str]:
    return (clone / "pip.log").read_text(encoding="utf-8").splitlines()


def test_without_any_python_it_says_which_one_to_install(clone):
    result = set_up(clone)
    assert result.returncode == 1
    assert "no working Python called python3; Python 3.11 or newer is needed" in result.stderr
    assert "make setup PYTHON=python3.12" in result.stderr


def test_an_old_python_named_by_the_user_is_refused_with_one_that_would_do(clone):
    interpreter(clone, "python3", OLD_PYTHON)
    interpreter(clone, "python3.12", WORKING)
    result = set_up(clone, PYTHON="python3")
    assert result.returncode == 1
    assert "python3 is Python 3.8; Python 3.11 or newer is needed" in result.stderr
    assert "This machine has one: make setup PYTHON=python3.12" in result.stderr
    assert not (clone / ".venv").exists()


def test_an_old_default_python_is_passed_over_for_a_newer_one(clone):
    interpreter(clone, "python3", OLD_PYTHON)
    interpreter(clone, "python3.12", WORKING)
    result = set_up(clone)
    assert result.returncode == 0, result.stderr
    assert "Setting up .venv with python3.12 (Python 3.12)" in result.stdout


def test_a_python_without_venv_is_answered_with_the_package_to_install(clone):
    interpreter(clone, "python3", NO_VENV)
    result = set_up(clone)
    assert result.returncode == 1
    assert "apt-get install python3-venv" in result.stderr


def test_downloads_are_announced_before_pip_runs_and_the_index_is_left_to_pip(clone):
    interpreter(clone, "python3", WORKING)
    result = set_up(clone)
    assert result.returncode == 0, result.stderr
    announced, _, installed = result.stdout.partition("Installing (pip install")
    assert "download: about 0.5 GB with a CPU build of torch, about 3.0 GB with its default build" in announced
    assert "--constraint constraints.txt --editable .[planner,trainer,demo,dev,tracing]" in installed
    assert not any("index-url" in run for run in pip_runs(clone))


def test_the_cpu_build_of_torch_is_looked_for_where_the_user_says(clone):
    interpreter(clone, "python3", WORKING)
    assert set_up(clone, TORCH_CPU_INDEX="https://torch.example/cpu").returncode == 0
    assert "--extra-index-url https://torch.example/cpu" in pip_runs(clone)[-1]


def test_a_second_run_does_nothing_until_something_changed(clone):
    interpreter(clone, "python3", WORKING)
    set_up(clone)
    first = pip_runs(clone)
    (clone.parent / "bin" / "python3").unlink()  # not even Python is asked
    again = set_up(clone)
    assert (again.returncode, again.stdout, pip_runs(clone)) == (0, "", first)
    with (clone / "constraints.txt").open("a", encoding="utf-8") as file:
        file.write("new==1\n")
    changed = set_up(clone)
    assert changed.returncode == 0, changed.stderr
    assert "bringing it up to date" in changed.stdout
    assert "download:" not in changed.stdout
    assert len(pip_runs(clone)) == 2 * len(first)


def test_kernels_are_compiled_at_set_up_and_anew_when_they_are_not_there(clone):
    """Whether they are, for the source as it is, says the planner: tests/planner_service/test_kernel_cache.py."""
    interpreter(clone, "python3", WORKING)
    result = set_up(clone)
    assert "Compiling the search's kernels" in result.stdout
    assert set_up(clone).stdout == ""
    (clone / "kernels.compiled").unlink()
    assert "Compiling the search's kernels" in set_up(clone).stdout
    assert (clone / "kernels.log").read_text(encoding="utf-8") == "compiled\n" * 2
    assert len(pip_runs(clone)) == 2


def test_a_clone_that_was_moved_is_set_up_anew(clone):
    interpreter(clone, "python3", WORKING)
    set_up(clone)
    moved = clone.rename(clone.parent / "moved")
    result = set_up(moved)
    assert result.returncode == 0, result.stderr
    assert "making it anew" in result.stdout


def test_without_a_network_it_says_so_at_once_and_the_next_try_works(clone):
    interpreter(clone, "python3", WORKING)
    result = set_up(clone, NO_NETWORK="1")
    assert result.returncode == 1
    assert "pip does not reach a package index" in result.stderr
    assert "set HTTPS_PROXY" in result.stderr
    assert len(pip_runs(clone)) == 1
    assert set_up(clone).returncode == 0


def test_a_failed_installation_is_explained_and_the_next_try_goes_on_from_there(clone):
    interpreter(clone, "python3", WORKING)
    result = set_up(clone, NO_ROOM="1")
    assert result.returncode == 1
    assert "GB are free in this folder" in result.stderr
    assert "run make again" in result.stderr
    kept = (clone / ".venv" / "bin" / "python").stat()
    again = set_up(clone)
    assert again.returncode == 0, again.stderr
    found = (clone / ".venv" / "bin" / "python").stat()
    assert (found.st_ino, found.st_mtime_ns) == (kept.st_ino, kept.st_mtime_ns)


def test_a_broken_venv_is_made_anew(clone):
    interpreter(clone, "python3", WORKING)
    (clone / ".venv" / "bin").mkdir(parents=True)
    result = set_up(clone)
    assert result.returncode == 0, result.stderr
    assert "making it anew" in result.stdout


def test_a_full_disk_is_seen_before_anything_is_written(clone):
    interpreter(clone, "python3", WORKING)
    (clone.parent / "bin" / "df").unlink()
    interpreter(clone, "df", 'printf "Filesystem 1024-blocks Used Available\\n/dev/x 9 9 400000\\n"')
    result = set_up(clone)
    assert result.returncode == 1
    assert "only 0.4 GB are free in this folder, and .venv needs about 2 GB" in result.stderr
    assert not (clone / ".venv").exists()


def test_a_disk_too_small_for_the_default_build_alone_is_a_warning(clone):
    interpreter(clone, "python3", WORKING)
    (clone.parent / "bin" / "df").unlink()
    interpreter(clone, "df", 'printf "Filesystem 1024-blocks Used Available\\n/dev/x 9 9 4000000\\n"')
    assert "its CPU build would not" in set_up(clone).stdout
    shutil.rmtree(clone / ".venv")
    assert "would fill the disk" not in set_up(clone, TORCH_CPU_INDEX="https://torch.example/cpu").stdout


def test_help_lists_every_routine_with_a_line_of_its_own():
    listed = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    ).stdout
    for routine in ("setup", "demo", "test", "lint", "protos", "help"):
        lines = [line for line in listed.splitlines() if line.split()[:2] == ["make", routine]]
        assert len(lines) == 1
        assert len(lines[0].split()) > 4


def test_make_in_another_folder_says_where_to_go(tmp_path):
    result = subprocess.run(
        ["make", "-f", str(ROOT / "Makefile"), "test"],
        cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert result.returncode != 0
    assert f"cd {ROOT}" in result.stderr


def test_the_floor_is_the_one_that_the_package_states():
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    assert stated == ">=3.11"
    assert "(3, 11)" in (ROOT / "tools" / "setup.sh").read_text(encoding="utf-8")
    assert sys.version_info >= (3, 11)
