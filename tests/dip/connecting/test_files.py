"""Which files a client connects with: read from the environment, refused in one line, no token sent in the clear."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from dip.connecting import ClientFiles, ClientFilesError, Endpoints
from dip.connecting.files import read
from dip.connecting.variables import ALLOW_INSECURE, CA_FILE, CERT_FILE, KEY_FILE, TOKEN_FILE

if TYPE_CHECKING:
    from pathlib import Path

REMOTE = Endpoints.parse("unix:///run/p.sock,planner.train:50061")
LOCAL = Endpoints.parse("unix:///run/p.sock,127.0.0.1:50061,[::1]:50061,localhost:50061")


def test_an_empty_environment_names_none() -> None:
    assert ClientFiles.from_environment({}) == ClientFiles()
    assert ClientFiles.from_environment(dict.fromkeys((CA_FILE, CERT_FILE, KEY_FILE, TOKEN_FILE), "")) == ClientFiles()
    assert not ClientFiles().tls


def test_the_variables_are_read() -> None:
    environ = {CA_FILE: "ca", CERT_FILE: "cert", KEY_FILE: "key", TOKEN_FILE: "token", ALLOW_INSECURE: "True"}
    assert ClientFiles.from_environment(environ) == ClientFiles(
        ca_file="ca", cert_file="cert", key_file="key", token_file="token", allow_insecure=True
    )


def test_the_process_environment_is_read_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_FILE, "from-the-process")
    assert ClientFiles.from_environment().token_file == "from-the-process"


@pytest.mark.parametrize("files", [ClientFiles(ca_file="system"), ClientFiles(cert_file="cert", key_file="key")])
def test_authorities_or_a_certificate_ask_for_tls(files: ClientFiles) -> None:
    assert files.tls


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({CERT_FILE: "a.crt"}, f"^{CERT_FILE}: 'a.crt'; needs {KEY_FILE}, which is unset$"),
        ({KEY_FILE: "a.key"}, f"^{KEY_FILE}: 'a.key'; needs {CERT_FILE}, which is unset$"),
        ({ALLOW_INSECURE: "perhaps"}, f"^{ALLOW_INSECURE}: 'perhaps'; must be true or false$"),
    ],
)
def test_what_cannot_be_is_refused(environ: dict[str, str], said: str) -> None:
    with pytest.raises(ClientFilesError, match=said):
        ClientFiles.from_environment(environ)


def test_a_token_leaves_the_machine_under_tls_only_unless_told_so() -> None:
    with pytest.raises(
        ClientFilesError, match=rf"^{TOKEN_FILE} .*planner.train:50061 .*{CA_FILE}.*{ALLOW_INSECURE}=true"
    ):
        ClientFiles(token_file="t").check(REMOTE)
    ClientFiles(token_file="t").check(LOCAL)
    ClientFiles(token_file="t", ca_file="system").check(REMOTE)
    ClientFiles(token_file="t", allow_insecure=True).check(REMOTE)
    ClientFiles().check(REMOTE)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing", "cannot be read: No such file or directory"),
        ("missing/file", "cannot be read: No such file or directory"),
        ("folder", "must be a regular file"),
        ("pipe", "must be a regular file"),
        ("empty", "is empty"),
        ("blank", "is empty"),
        ("big", "has more than 10 bytes"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
        ("nul\0", "is no name of a file"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_variable(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    (tmp_path / "blank").write_text(" \n")
    (tmp_path / "big").write_text("x" * 11)
    (tmp_path / "loop").symlink_to("loop")
    path = f"{tmp_path}/{name}"
    with pytest.raises(ClientFilesError) as caught:
        read(CA_FILE, path, at_most=10)
    assert str(caught.value) == f"{CA_FILE}: {path!r}; {said}"


def test_a_file_is_read_through_links(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("held")
    (tmp_path / "link").symlink_to("real")
    assert read(CA_FILE, f"{tmp_path}/link", at_most=4) == b"held"
