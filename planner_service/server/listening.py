"""Addresses to listen on, and readable words for those that cannot be had."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    import grpc

OWNER_ONLY: Final = 0o600

_UNIX = "unix://"
_ALL = 0o777


class ListenError(Exception):
    """An address that cannot be listened on; the message is one line and says what to do."""


def listen(
    server: grpc.aio.Server,
    address: str,
    setting: str,
    *,
    credentials: grpc.ServerCredentials | None = None,
    socket_mode: int = OWNER_ONLY,
) -> str:
    """Have a server listen.

    The address is tried with a plain socket first: gRPC says little about why it cannot have one, and takes a UNIX
    socket away from the process that serves it.

    Parameters
    ----------
    address
        ``host:port`` or ``unix:///path``.
    setting
        Name of the setting that holds it, for the message.
    credentials
        What TLS is made with, on ``host:port``; None: there is none.
    socket_mode
        Permissions of a UNIX socket: who may write to it may call.

    Returns
    -------
    str
        The address, with the port that was taken where it asked for port 0.

    Raises
    ------
    ListenError
    """
    try:
        if address.startswith(_UNIX):
            path = Path(address.removeprefix(_UNIX))
            _try_unix(path)
            with _new_files_have(socket_mode):
                server.add_insecure_port(address)
            path.chmod(socket_mode)  # a directory's default ACL overrides the process's mask
            return address
        _try_tcp(*split_address(address))
        port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    except (OSError, RuntimeError) as error:
        raise ListenError(explain(address, setting, error)) from error
    return f"{address.rpartition(':')[0]}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Host, without the brackets of IPv6, and port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


@contextlib.contextmanager
def _new_files_have(mode: int) -> Iterator[None]:
    """Have what this process makes meanwhile never be open to more than `mode` says.

    gRPC binds and listens in one step, so that permissions that were set after it would come too late for whoever
    connects at once.
    """
    before = os.umask(_ALL & ~mode)
    try:
        yield
    finally:
        os.umask(before)


def _try_tcp(host: str, port: int) -> None:
    family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(where)
        probe.listen(1)


def _try_unix(path: Path) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"there is no directory {path.parent}")
    if not path.exists():
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(str(path))
        path.unlink()
        return
    if not path.is_socket():
        raise FileExistsError(errno.EEXIST, "a file that is not a socket has this name")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return  # left behind by a process that died
    raise OSError(errno.EADDRINUSE, "address in use")


def explain(address: str, setting: str, error: OSError | RuntimeError) -> str:
    """Why an address cannot be had, and what to do, in one line."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        why = "another process listens there (another planner, perhaps)"
    else:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return f"cannot listen on {address}: {why}; set {setting} to a free address, 127.0.0.1:0 takes any free port"
