"""Shows that messages are read whole or refused with a reason, and written whole or not at all."""

from __future__ import annotations

import io
import os
import stat
from typing import TYPE_CHECKING

import corners
import pytest
from dip.planner.v1 import planner_pb2 as pb

from planner_service.commands.failure import CommandError
from planner_service.commands.files import message_text, read_json, read_message, write_text

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", corners.FITTING)
def test_a_message_comes_back_as_it_was_written(name: str, tmp_path: Path) -> None:
    request = corners.FITTING[name]()
    write_text(str(tmp_path / "request.json"), message_text(request))
    assert read_message(str(tmp_path / "request.json"), pb.PlanRequest()) == request


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"job": {}}'))
    assert read_json("-") == {"job": {}}


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_bytes(b"\xef\xbb\xbf{}")
    assert read_json(str(tmp_path / "request.json")) == {}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"null", "holds a JSON NoneType, must be an object"),
        (b"[1]", "holds a JSON list"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b'{"job": {}, "job": {}}', "key 'job' is there twice"),
        (b"9" * 5000, "is not JSON"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_object_is_refused(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "request.json").write_bytes(content)
    with pytest.raises(CommandError, match=says) as caught:
        read_json(str(tmp_path / "request.json"))
    assert str(tmp_path / "request.json") in str(caught.value)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="Is a directory"):
        read_json(str(tmp_path))


def test_a_file_is_replaced_with_its_permissions(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    target.write_text("old")
    target.chmod(0o640)
    write_text(str(target), "new")
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [target]


def test_a_new_file_gets_the_permissions_that_others_get(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(str(tmp_path / "plan.json"), "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "plan.json").stat().st_mode) == 0o640


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "plan.json"
    target.write_text("old")

    def no_space(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(CommandError, match="No space left on device"):
        write_text(str(target), "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_keeps_pointing(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    write_text(str(tmp_path / "link.json"), "new")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == "new"


def test_a_device_is_written_to() -> None:
    write_text(os.devnull, "text")
