"""Shows that files are taken anew when they changed, whole and good, however they are replaced; and else left alone."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest

from planner_service.access import AccessError
from planner_service.access.watched import Watched

if TYPE_CHECKING:
    from pathlib import Path


def joined(contents: tuple[bytes, ...]) -> str:
    if b"bad" in contents:
        raise AccessError("one is bad")
    return "+".join(content.decode() for content in contents)


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    return {"DIP_A": tmp_path / "a", "DIP_B": tmp_path / "b"}


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_change_is_taken_when_it_was_seen_twice(paths: dict[str, Path]) -> None:
    watched = Watched(paths, joined)
    assert (watched.value, watched.look()) == ("a+b", False)
    paths["DIP_A"].write_text("A")
    assert (watched.look(), watched.value) == (False, "a+b")
    assert (watched.look(), watched.value) == (True, "A+b")
    assert watched.look() is False


def test_files_that_are_still_being_written_are_waited_for(
    paths: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(paths, joined)
    for content in ("bad", "A", "", "B"):
        paths["DIP_A"].write_text(content)
        assert watched.look() is False
    assert watched.value == "a+b"
    assert watched.look() is True
    assert watched.value == "B+b"
    assert errors(caplog) == []


def test_bad_content_is_said_once_and_changes_nothing(paths: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(paths, joined)
    paths["DIP_B"].write_text("bad")
    for _ in range(5):
        assert watched.look() is False
    assert watched.value == "a+b"
    assert errors(caplog) == ["what was there before stays in force: one is bad"]
    paths["DIP_B"].write_text("good")
    assert [watched.look() for _ in range(3)] == [False, True, False]
    assert watched.value == "a+good"


@pytest.mark.parametrize("gone", ["missing", "directory", "pipe", "huge"])
def test_file_that_cannot_be_read(paths: dict[str, Path], gone: str, caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(paths, joined)
    path = paths["DIP_A"]
    path.unlink()
    match gone:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)  # whoever read it would wait for ever
        case "huge":
            path.write_bytes(bytes(2**20 + 1))
    assert [watched.look() for _ in range(4)] == [False] * 4
    assert watched.value == "a+b"
    (said,) = errors(caplog)
    assert f"DIP_A={path}: " in said
    with pytest.raises(AccessError, match=f"DIP_A={path}: "):
        Watched(paths, joined)


def test_old_content_that_comes_back_is_no_change(paths: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(paths, joined)
    content = paths["DIP_A"].read_bytes()
    paths["DIP_A"].unlink()
    assert watched.look() is False
    paths["DIP_A"].write_bytes(content)
    assert [watched.look() for _ in range(3)] == [False] * 3
    assert errors(caplog) == []


def test_kubernetes_way_of_swapping_a_link_to_a_directory(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / f"..{version}").mkdir()
        for name in ("a", "b"):
            file = tmp_path / f"..{version}" / name
            file.write_text(f"{name}{version}")
            os.utime(file, (0, 0))  # the same size and the same times
    (tmp_path / "..data").symlink_to("..1")
    for name in ("a", "b"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    watched = Watched({"DIP_A": tmp_path / "a", "DIP_B": tmp_path / "b"}, joined)
    assert watched.value == "a1+b1"
    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert [watched.look() for _ in range(3)] == [False, True, False]
    assert watched.value == "a2+b2"
