"""Shows that gRPC can listen on the longest path that is allowed and none that is longer, and what hosts are called."""

from __future__ import annotations

import contextlib
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from dip.addresses import MOST_PATH_BYTES, check_host, check_socket_path
from dip.connecting import Endpoint


@pytest.mark.parametrize(("size", "bound"), [(MOST_PATH_BYTES, True), (MOST_PATH_BYTES + 1, False)])
def test_the_limit_is_grpcs(size: int, bound: bool) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # that of pytest may be too long itself
        path = f"{folder}/".ljust(size, "x")
        with contextlib.nullcontext() if bound else pytest.raises(RuntimeError, match="Failed to bind"):
            server.add_insecure_port(f"unix://{path}")
        assert Path(path).exists() is bound
        server.stop(None).wait()


def test_bytes_are_counted_and_told() -> None:
    path = "/" + "ü" * (MOST_PATH_BYTES // 2)
    check_socket_path(path)
    with pytest.raises(ValueError, match=rf"at most {MOST_PATH_BYTES} bytes, {path}/ has {MOST_PATH_BYTES + 1}: "):
        check_socket_path(path + "/")


def test_an_endpoint_says_so() -> None:
    with pytest.raises(ValueError, match=f"at most {MOST_PATH_BYTES} bytes"):
        Endpoint.parse("unix:///" + "x" * MOST_PATH_BYTES)


@pytest.mark.parametrize("host", ["planner", "10.0.0.1", "a.b-c.d_e.", "x" * 63, ".".join(["x" * 62] * 4)])
def test_hosts(host: str) -> None:
    check_host(host)


@pytest.mark.parametrize(
    "host", ["", ".", "a..b", ".a", "a..", "x" * 64, ".".join(["x" * 63] * 4), "a b", "a/b", "\u00fc", "a\n"]
)
def test_no_hosts(host: str) -> None:
    with pytest.raises(ValueError, match="is no name of a host: that is letters") as caught:
        check_host(host)
    assert repr(host) in str(caught.value)


def test_an_endpoint_needs_a_host() -> None:
    with pytest.raises(ValueError, match=r"'a\.\.b:1'; 'a\.\.b' is no name of a host"):
        Endpoint.parse("a..b:1")
