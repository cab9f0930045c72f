"""Credentials from files that change: the newest that are good, a word when they are not, channels as they ask for."""

from __future__ import annotations

import logging
from concurrent import futures
from typing import TYPE_CHECKING

import grpc
import pytest
from dip.connecting import (
    ClientFiles,
    ClientFilesError,
    Credentials,
    CredentialSource,
    Endpoint,
)
from dip.connecting.variables import CERT_FILE, TOKEN_FILE
from waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from certificates import Authority, Pair


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("first\n")
    return file


def mtls(authority: Authority, pair: Pair) -> ClientFiles:
    return ClientFiles(ca_file=str(authority.file), cert_file=str(pair.certificate_file), key_file=str(pair.key_file))


def test_a_token_is_read_again_for_every_call(token_file: Path) -> None:
    files = ClientFiles(token_file=str(token_file))
    source = CredentialSource(files)
    assert source.current().metadata() == (("authorization", "Bearer first"),)
    token_file.write_text("other\n")  # as long, and within the same tick of the file system's clock
    assert source.current().metadata() == (("authorization", "Bearer other"),)


def test_without_files_nothing_is_shown() -> None:
    assert CredentialSource(ClientFiles()).current() == Credentials()
    assert Credentials().metadata() == ()


def test_no_secret_is_printed(token_file: Path) -> None:
    assert "first" not in repr(CredentialSource(ClientFiles(token_file=str(token_file))).current())


def test_links_that_are_swapped_are_followed(tmp_path: Path) -> None:
    """As Kubernetes does it: the file is a link into a directory that is a link."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(name)
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "token").symlink_to("..data/token")
    source = CredentialSource(ClientFiles(token_file=str(tmp_path / "token")))
    assert source.current().token == "one"
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").rename(tmp_path / "..data")
    assert source.current().token == "two"


def test_what_cannot_be_used_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ClientFilesError, match=f"^{TOKEN_FILE}: "):
        CredentialSource(ClientFiles(token_file=str(tmp_path / "missing")))


def test_later_the_last_that_were_good_are_used_and_each_trouble_is_said_once(
    token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = CredentialSource(ClientFiles(token_file=str(token_file)))
    token_file.unlink()
    assert [source.current().token for _ in range(3)] == ["first"] * 3
    assert [record.getMessage() for record in caplog.records] == [
        f"{TOKEN_FILE}: {str(token_file)!r}; cannot be read: No such file or directory; what was last read from it is "
        "used on"
    ]
    token_file.write_text("two words")
    assert [source.current().token for _ in range(3)] == ["first"] * 3
    assert len(caplog.records) == 2
    token_file.write_text("good")
    assert source.current().token == "good"
    token_file.unlink()
    assert source.current().token == "good"
    assert len(caplog.records) == 3
    assert "first" not in caplog.text
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_a_certificate_that_is_half_replaced_is_not_used(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    pair, new = authority.pair("agent"), authority.pair("agent")
    source = CredentialSource(mtls(authority, pair))
    before = source.current()
    pair.certificate_file.write_bytes(new.chain)
    assert source.current() == before
    assert "does not fit the first certificate" in caplog.text
    pair.key_file.write_bytes(new.key)
    after = source.current()
    assert after != before
    assert after.tls is not None
    assert (after.tls.certificate, after.tls.key) == (new.chain, new.key)


def test_a_changed_token_leaves_the_certificates_as_they_are(authority: Authority, token_file: Path) -> None:
    source = CredentialSource(ClientFiles(ca_file=str(authority.file), token_file=str(token_file)))
    before = source.current()
    token_file.write_text("other")
    assert source.current() != before
    assert source.current().tls == before.tls


@pytest.fixture
def serve() -> Iterator[Callable[..., Endpoint]]:
    """Start servers that say which token they were shown."""
    servers: list[grpc.Server] = []

    def told(_: bytes, context: grpc.ServicerContext) -> bytes:
        return str(dict(context.invocation_metadata()).get("authorization", "")).encode()

    def serve(address: str = "127.0.0.1:0", credentials: grpc.ServerCredentials | None = None) -> Endpoint:
        server = grpc.server(futures.ThreadPoolExecutor(1))
        handler = grpc.unary_unary_rpc_method_handler(told)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", {"Token": handler}),))
        port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
        server.start()
        servers.append(server)
        return Endpoint.parse(address if address.startswith("unix:") else f"127.0.0.1:{port}")

    yield serve
    for server in servers:
        server.stop(grace=None).wait(PATIENCE_S)


def ask(endpoint: Endpoint, files: ClientFiles) -> bytes:
    credentials = CredentialSource(files).current()
    with credentials.channel(endpoint) as channel:
        return channel.unary_unary("/test/Token")(b"", timeout=PATIENCE_S, metadata=credentials.metadata())


def test_plaintext_tls_and_certificates_of_both_sides(
    authority: Authority, token_file: Path, serve: Callable[..., Endpoint]
) -> None:
    planner, client = authority.pair(), authority.pair("agent")
    pairs = [(planner.key, planner.chain)]
    token = str(token_file)
    assert ask(serve(), ClientFiles(token_file=token)) == b"Bearer first"
    tls = serve(credentials=grpc.ssl_server_credentials(pairs))
    assert ask(tls, ClientFiles(ca_file=str(authority.file), token_file=token)) == b"Bearer first"
    both = serve(credentials=grpc.ssl_server_credentials(pairs, authority.pem, require_client_auth=True))
    assert ask(both, mtls(authority, client)) == b""


def test_a_unix_socket_is_never_spoken_tls_on(
    tmp_path: Path, authority: Authority, token_file: Path, serve: Callable[..., Endpoint]
) -> None:
    files = ClientFiles(ca_file=str(authority.file), token_file=str(token_file))
    assert ask(serve(f"unix://{tmp_path}/planner.sock"), files) == b"Bearer first"


def test_a_proxy_of_the_environment_is_not_asked_about_this_machine(
    authority: Authority, serve: Callable[..., Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    planner = authority.pair()
    tls = serve(credentials=grpc.ssl_server_credentials([(planner.key, planner.chain)]))
    assert ask(serve(), ClientFiles()) == b""
    assert ask(tls, ClientFiles(ca_file=str(authority.file))) == b""


def test_a_file_that_is_missing_at_the_start_is_an_error(tmp_path: Path, authority: Authority) -> None:
    missing = str(tmp_path / "missing")
    files = ClientFiles(ca_file=str(authority.file), cert_file=missing, key_file=missing)
    with pytest.raises(ClientFilesError, match=f"^{CERT_FILE}: '{missing}'; cannot be read"):
        CredentialSource(files)
