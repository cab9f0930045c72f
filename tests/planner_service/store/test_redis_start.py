"""Shows that a store that can never work refuses to start, says what to set, and never shows a password."""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis
from redis_cases import needs_redis, nothing
from serving import run
from store_cases import add, claimant, key, planned, record
from waiting import PATIENCE_S

from benchmarks.held_port import HeldPort
from benchmarks.redis_server import RedisServer, server_programs
from planner_service.store import Claim, StoreAwayError, StoreError
from planner_service.store.redis_store import RedisStore

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = needs_redis

PASSWORD = "s3cret/@:#?%"
QUOTED = "s3cret%2F%40%3A%23%3F%25"
DOCS = Path(__file__).parents[3] / "docs" / "redis.md"


@pytest.fixture(scope="module", params=server_programs())
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Start each kind of server in turn, with a password."""
    with locked(server_programs()[request.param]) as started:
        yield started


@contextlib.contextmanager
def locked(program: str) -> Iterator[RedisServer]:
    with RedisServer(program=program) as started:
        with started.client() as client:
            client.config_set("requirepass", PASSWORD)
        yield started


def url(server: RedisServer, credentials: str, *, scheme: str = "redis") -> str:
    return f"{scheme}://{credentials}127.0.0.1:{server.port}/1"


def refusal(address: str, *, timeout_s: float = PATIENCE_S) -> str:
    """Return why a store does not start, or what it says first."""
    said: list[str] = []

    async def scenario() -> None:
        store = RedisStore(address, timeout_s=timeout_s)
        try:
            await store.start(nothing)
            await store.jobs()
        except StoreError as error:
            said.append(("away: " if isinstance(error, StoreAwayError) else "never: ") + str(error))
        finally:
            await store.close()

    run(scenario())
    return "".join(said)


def test_right_password_opens(server: RedisServer) -> None:
    assert refusal(url(server, f":{QUOTED}@")) == ""
    assert refusal(url(server, f"default:{QUOTED}@")) == ""


@pytest.mark.parametrize("credentials", ["", ":wrong-s3cret@", "nobody:wrong-s3cret@"])
def test_wrong_password_is_never_right(server: RedisServer, credentials: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said = refusal(url(server, credentials))
    assert said.startswith("never: ")
    assert "user or password in DIP_STORE" in said
    assert "s3cret" not in said + caplog.text


def test_user_needs_the_documented_rights_and_no_more(server: RedisServer) -> None:
    rights = re.search(r"^Rights .*: `([^`]+)`", DOCS.read_text(), flags=re.MULTILINE)
    assert rights is not None
    with redis.Redis(port=server.port, password=PASSWORD, socket_timeout=PATIENCE_S) as client:
        client.execute_command("ACL", "SETUSER", "planner", "on", ">s3cret", *rights[1].split())
        client.execute_command("ACL", "SETUSER", "reader", "on", ">s3cret", "~dip:*", "&dip:*", "+@read", "+info")

    async def scenario() -> None:
        store = RedisStore(url(server, "planner:s3cret@"), timeout_s=PATIENCE_S)
        await store.start(nothing)
        await store.put_job(record())
        await add(store, 0)
        claim = await store.claim(claimant(), [])
        assert isinstance(claim, Claim)
        await store.renew(claimant(), [claim])
        await store.release(claimant(), [claim])
        with store.watch(key(0).replica) as watch:
            await store.settle(key(0), b"digest", planned())
            await watch.changed()
        await store.put_job(record(version=1, attempt=2))
        await store.close()

    run(scenario())
    said = refusal(url(server, "reader:s3cret@"))
    assert said.startswith("never: ")
    assert "forbids the user in DIP_STORE" in said
    assert "s3cret" not in said


def test_server_without_tls_is_not_spoken_to_with_it(server: RedisServer) -> None:
    said = refusal(url(server, f":{QUOTED}@", scheme="rediss"), timeout_s=0.5)
    assert "TLS" in said
    assert "s3cret" not in said


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Start a server with a certificate of its own; yield where it takes TLS, and the certificate."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    folder = tmp_path_factory.mktemp("tls")
    certificate, private = folder / "server.pem", folder / "server.key"
    named = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    files = ["-keyout", str(private), "-out", str(certificate)]
    subprocess.run([openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", *named, *files], check=True)
    port = HeldPort()
    options = {
        "tls-port": str(port.number),
        "tls-cert-file": str(certificate),
        "tls-key-file": str(private),
        "tls-ca-cert-file": str(certificate),
        "tls-auth-clients": "no",
    }
    for program in server_programs().values():
        server = RedisServer(program=program, options=options)
        with contextlib.suppress(RuntimeError), server:
            yield f"127.0.0.1:{port.number}", certificate
            return
    pytest.skip("no server here speaks TLS")


def test_certificate_is_checked(encrypted: tuple[str, Path]) -> None:
    place, certificate = encrypted
    assert refusal(f"rediss://{place}/?ssl_ca_certs={certificate}") == ""
    untrusted = refusal(f"rediss://{place}/")
    assert untrusted.startswith("never: ")
    assert "ssl_ca_certs" in untrusted
    plain = refusal(f"redis://{place}/")
    assert plain.startswith("away: ")
    assert "it may speak TLS only, which rediss:// asks for" in plain


def test_server_that_repeats_the_password_is_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with RedisServer(options={"rename-command": "AUTH NOAUTH"}) as server:
        said = refusal(url(server, "user:s3cret@"))
        assert "'***'" in said
        assert "s3cret" not in said + caplog.text


def test_server_without_a_command_that_planners_need_is_refused() -> None:
    with RedisServer(options={"rename-command": "EVALSHA NONE"}) as server:
        said = refusal(server.url)
        assert said.startswith("never: ")
        assert "lacks a command that planners need" in said


def test_database_that_is_not_there_is_refused(server: RedisServer) -> None:
    said = refusal(url(server, f":{QUOTED}@").removesuffix("/1") + "/16")
    assert said.startswith("never: ")
    assert "no such database as DIP_STORE names" in said


def test_file_that_cannot_be_read_is_named() -> None:
    said = refusal("rediss://:s3cret@127.0.0.1:1/0?ssl_ca_certs=/nowhere/ca.pem")
    assert said == (
        "never: DIP_STORE: ssl_ca_certs holds '/nowhere/ca.pem', which cannot be read: No such file or directory"
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "away: .*: Protocol Error: b'HTTP/1.1 400 Bad Request'"),
        (b"-READONLY nothing is written here\r\n", "away: .*: nothing is written here"),
        (b"", "away: .*; it may speak TLS only, .* or refuse connections from here .protected mode."),
    ],
)
def test_what_answers_otherwise_than_a_store_is_told_apart(answer: bytes, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    # The store has several connections, and lets go of a bad one when it sees fit.
                    threading.Thread(target=speak, args=(connection,), daemon=True).start()

        def speak(connection: socket.socket) -> None:
            with contextlib.suppress(OSError), connection:
                while (asked := connection.recv(1_000)) and answer:
                    # Several commands may come at once, and each is answered.
                    connection.sendall(answer * len(re.findall(rb"^\*", asked, flags=re.MULTILINE)))

        answering = threading.Thread(target=serve)
        answering.start()
        heard = refusal(f"redis://127.0.0.1:{listening.getsockname()[1]}/0")
        listening.shutdown(socket.SHUT_RDWR)
        answering.join()
    assert re.fullmatch(said, heard), heard


def test_cluster_is_refused() -> None:
    bus = HeldPort()  # the usual one is above all ports
    with RedisServer(options={"cluster-enabled": "yes", "cluster-port": str(bus.number)}) as cluster:
        said = refusal(cluster.url)
        assert said.startswith("never: ")
        assert "Redis Cluster" in said


def test_eviction_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer(options={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}) as evicting:
        assert refusal(evicting.url) == ""
        assert caplog.text.count("allkeys-lru, not noeviction") == 1


def test_password_is_not_shown_where_nothing_answers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = RedisServer()
    said = refusal(url(server, "user:s3cret@"))
    server.close()
    assert said.startswith(f"away: redis://127.0.0.1:{server.port}/1: ")
    assert caplog.text.count("the store is away") == 1
    assert "s3cret" not in said + caplog.text
