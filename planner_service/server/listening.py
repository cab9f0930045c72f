"""Addresses to listen on, and readable words for those that cannot be had."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import grpc

_UNIX = "unix://"


class ListenError(Exception):
    """An address that cannot be listened on; the message is one line and says what to do."""


def listen(server: grpc.aio.Server, address: str, setting: str) -> str:
    """Have a server listen.

    The address is tried with a plain socket first: gRPC says little about why it cannot have one, and takes a UNIX
    socket away from the process that serves it.

    Parameters
    ----------
    address
        ``host:port`` or ``unix:///path``.
    setting
        Name of the setting that holds it, for the message.

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
            _try_unix(Path(address.removeprefix(_UNIX)))
        else:
            _try_tcp(*split_address(address))
        port = server.add_insecure_port(address)
    except (OSError, RuntimeError) as error:
        raise ListenError(_explain(address, setting, error)) from error
    return address if address.startswith(_UNIX) else f"{address.rpartition(':')[0]}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Host, without the brackets of IPv6, and port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


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


def _explain(address: str, setting: str, error: OSError | RuntimeError) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        why = "another process listens there (another planner, perhaps)"
    else:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return f"cannot listen on {address}: {why}; set {setting} to a free address, 127.0.0.1:0 takes any free port"
