"""Shows that a Redis's password comes from a file, changes with it, and is told to nobody but the Redis."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import pytest
import redis
import trustme
from redis_cases import needs_redis, nothing
from serving import run
from store_cases import record
from waiting import PATIENCE_S

from benchmarks.held_port import HeldPort
from benchmarks.redis_server import RedisServer, server_programs
from planner_service.store import StoreAwayError, StoreError, open_store
from planner_service.store.redis_store import RedisStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST, SECOND = "f1rst s3cret/@:#?%ü", "s3cond"
KEPT = {"kept_iterations": 1, "kept_bytes": 2**20, "kept_closed_jobs": 1, "idle_job_s": 60}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(f"{FIRST}\n")
    return path


@pytest.fixture(params=server_programs())
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Start each kind of server in turn, with the first password."""
    with RedisServer(program=server_programs()[request.param]) as started:
        with started.client() as client:
            client.config_set("requirepass", FIRST)
            client.execute_command("ACL", "SETUSER", "planner", "on", f">{FIRST}", "~*", "&*", "+@all")
        yield started


@needs_redis
@pytest.mark.parametrize("user", ["", "planner@"])
def test_password_of_the_file_opens_whoever_the_user_is(server: RedisServer, file: Path, user: str) -> None:
    async def scenario() -> None:
        store = RedisStore(f"redis://{user}127.0.0.1:{server.port}/1", password_file=file, timeout_s=PATIENCE_S)
        await store.start(nothing)
        await store.put_job(record())
        assert len(await store.jobs()) == 1
        await store.close()

    run(scenario())


@needs_redis
def test_changed_password_is_used_by_the_next_connection(
    server: RedisServer, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario() -> None:
        store = RedisStore(f"redis://127.0.0.1:{server.port}/1", password_file=file, timeout_s=PATIENCE_S)
        await store.start(nothing)
        try:
            await store.put_job(record())
            with redis.Redis(port=server.port, password=FIRST, socket_timeout=PATIENCE_S) as admin:
                admin.config_set("requirepass", SECOND)
                admin.client_kill_filter(skipme=True, _type="normal")
            with pytest.raises(StoreError, match="refuses user or password in DIP_STORE or DIP_STORE_PASSWORD_FILE"):
                await store.jobs()
            file.unlink()
            with pytest.raises(StoreAwayError, match=f"DIP_STORE_PASSWORD_FILE={file}: cannot be read: No such file"):
                await store.jobs()
            file.write_text(SECOND)
            assert len(await store.jobs()) == 1
        finally:
            await store.close()

    run(scenario())
    for secret in (FIRST, SECOND):
        assert secret not in caplog.text


@needs_redis
def test_password_and_tls_together(tmp_path: Path, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ca = trustme.CA()
    made = ca.issue_cert("127.0.0.1")
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    made.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "redis.pem"))
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    port = HeldPort()
    options = {
        "tls-port": str(port.number),
        "tls-cert-file": str(tmp_path / "redis.pem"),
        "tls-key-file": str(tmp_path / "redis.pem"),
        "tls-ca-cert-file": str(tmp_path / "ca.pem"),
        "tls-auth-clients": "no",
    }
    with tls_server(options) as server:
        with server.client() as client:
            client.config_set("requirepass", FIRST)
        for authorities, opens in (("ca.pem", True), ("other.pem", False)):
            url = f"rediss://127.0.0.1:{port.number}/0?ssl_ca_certs={tmp_path / authorities}"
            assert (why_not(url, password_file=file) == "") is opens
        file.write_text("wr0ng")
        said = why_not(f"rediss://127.0.0.1:{port.number}/0?ssl_ca_certs={tmp_path / 'ca.pem'}", password_file=file)
        assert "refuses user or password" in said
    assert FIRST not in caplog.text + said
    assert "wr0ng" not in caplog.text + said


@needs_redis
def test_server_that_repeats_the_password_is_not_repeated(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    file.write_text("s3cret")
    with RedisServer(options={"rename-command": "AUTH NOAUTH"}) as server:
        said = why_not(f"redis://user@127.0.0.1:{server.port}/0", password_file=file)
    assert "'***'" in said
    assert "s3cret" not in said + caplog.text


def tls_server(options: dict[str, str]) -> RedisServer:
    """Make a server of a program that speaks TLS."""
    for program in server_programs().values():
        server = RedisServer(program=program, options=options)
        try:
            with server:
                return RedisServer(program=program, options=options)
        except RuntimeError:  # this one was built without
            server.close()
    pytest.skip("no Redis server here speaks TLS")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "must hold 1 to 4096 bytes"),
        (b"\n", "must hold 1 to 4096 bytes"),
        (b"x" * 4097, "must hold 1 to 4096 bytes"),
        (b"s3cret\xff", "is no UTF-8 text"),
        (None, "cannot be read: No such file or directory"),
        ("pipe", "is no regular file"),
    ],
)
def test_file_that_cannot_be_used_is_no_start(tmp_path: Path, content: bytes | str | None, says: str) -> None:
    path = tmp_path / "password"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        os.mkfifo(path)
    said = why_not("redis://127.0.0.1:1/0", password_file=path)
    assert said == f"DIP_STORE_PASSWORD_FILE={path}: {says}"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://:s3cret@127.0.0.1:1/0", "DIP_STORE: holds a password, and DIP_STORE_PASSWORD_FILE is set too"),
        ("memory://", "DIP_STORE_PASSWORD_FILE is set, and DIP_STORE=memory:// asks for no password"),
    ],
)
def test_file_that_nobody_needs_is_said(url: str, says: str, file: Path) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(url, password_file=file, **KEPT)
    assert says in str(caught.value)
    assert "s3cret" not in str(caught.value)


def why_not(url: str, **how: Any) -> str:
    """Return why a store cannot be used; empty: it can."""
    said: list[str] = []

    async def scenario() -> None:
        store = RedisStore(url, timeout_s=PATIENCE_S, **how)
        try:
            await store.start(nothing)
            await store.jobs()
        except StoreError as error:
            said.append(str(error))
        finally:
            await store.close()

    run(scenario())
    return "".join(said)
