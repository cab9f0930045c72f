"""Shows that gRPC can listen on the longest path that is allowed, and on none that is longer."""

from __future__ import annotations

import contextlib
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from dip.connecting import Endpoint
from dip.socket_paths import MOST_BYTES, check_socket_path


@pytest.mark.parametrize(("size", "bound"), [(MOST_BYTES, True), (MOST_BYTES + 1, False)])
def test_the_limit_is_grpcs(size: int, bound: bool) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # that of pytest may be too long itself
        path = f"{folder}/".ljust(size, "x")
        with contextlib.nullcontext() if bound else pytest.raises(RuntimeError, match="Failed to bind"):
            server.add_insecure_port(f"unix://{path}")
        assert Path(path).exists() is bound
        server.stop(None).wait()


def test_bytes_are_counted_and_told() -> None:
    path = "/" + "ü" * (MOST_BYTES // 2)
    check_socket_path(path)
    with pytest.raises(ValueError, match=rf"at most {MOST_BYTES} bytes, {path}/ has {MOST_BYTES + 1}: "):
        check_socket_path(path + "/")


def test_an_endpoint_says_so() -> None:
    with pytest.raises(ValueError, match=f"at most {MOST_BYTES} bytes"):
        Endpoint.parse("unix:///" + "x" * MOST_BYTES)
