"""Tokens from files: blanks around them are none of theirs, and no error shows one."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import pytest
from dip.connecting import ClientFilesError
from dip.connecting.token import MAX_TOKEN_BYTES, bearer, read_token
from dip.connecting.variables import TOKEN_FILE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("held", ["s3cret", "s3cret\n", " \ts3cret\r\n\n"])
def test_a_token_is_what_is_between_blanks(tmp_path: Path, held: str) -> None:
    file = tmp_path / "token"
    file.write_text(held)
    assert read_token(str(file)) == "s3cret"


def test_it_travels_as_a_bearer_token() -> None:
    assert bearer("s3cret") == (("authorization", "Bearer s3cret"),)


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (b"s3cret\ns3cret", "must hold one line, holds 2"),
        (b"s3cret\rs3cret", "must hold one line, holds 2"),
        (b"s3cret s3cret", "must hold visible ASCII characters alone; character 7 is none"),
        (b"s3cret\0", "must hold visible ASCII characters alone; character 7 is none"),
        ("s3crét".encode(), "must hold visible ASCII characters alone; character 5 is none"),
        (b"\xff\xfes3cret", "must hold visible ASCII characters alone; character 1 is none"),
        (b"s3cret" * 1000, f"has more than {MAX_TOKEN_BYTES} bytes"),
        (b"\n", "is empty"),
    ],
)
def test_what_is_no_token_is_refused_without_showing_it(tmp_path: Path, held: bytes, said: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(held)
    with pytest.raises(ClientFilesError) as caught:
        read_token(str(file))
    assert str(caught.value) == f"{TOKEN_FILE}: {str(file)!r}; {said}"
    assert "s3cr" not in "".join(traceback.format_exception_only(caught.value))
