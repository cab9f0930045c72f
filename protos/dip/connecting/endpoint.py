"""Where planners listen: ``host:port`` or ``unix:///path``, several separated by commas."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dip.addresses import check_host, check_socket_path

if TYPE_CHECKING:
    from collections.abc import Iterator

ALLOWED = "host:port (127.0.0.1:50061, planner.train.svc:50061, [::1]:50061) or unix:///path/of/the.sock"

_HOST_PORT = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """A planner's address.

    Parameters
    ----------
    target
        The address as gRPC reads it, which is also how people write it.
    local
        Whether it cannot leave this machine: a socket of the file system or a loopback address. HTTP proxies of the
        environment are not asked about these.
    """

    target: str
    local: bool

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Read an address.

        Raises
        ------
        ValueError
            It is neither ``host:port`` nor ``unix:///path``, the path is too long, or there can be no such host; the
            message says what is allowed.
        """
        if text.startswith("unix:"):
            if not text.startswith("unix:///") or text.endswith("/"):
                raise ValueError(f"{text!r}; must be {ALLOWED}")
            with _told_of(text):
                check_socket_path(text.removeprefix("unix://"))
            return cls(target=text, local=True)
        match = _HOST_PORT.fullmatch(text)
        if match is None or not 1 <= int(match["port"]) <= 65535:
            raise ValueError(f"{text!r}; must be {ALLOWED}")
        if match["host"]:
            with _told_of(text):
                check_host(match["host"])
        return cls(target=text, local=_is_loopback(match["v6"] or match["host"]))

    @property
    def unix(self) -> bool:
        """Whether it is a socket of the file system."""
        return self.target.startswith("unix:")

    def __str__(self) -> str:
        return self.target


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoints:
    """The addresses of planners that share a store: whatever one of them takes or plans, all of them know.

    Parameters
    ----------
    each
        One or more, none twice. The first is preferred; the others are taken in turn while it is away.
    """

    each: tuple[Endpoint, ...]

    def __post_init__(self) -> None:
        if not self.each:
            raise ValueError("each: (); must be one endpoint or more")
        twice = [str(endpoint) for endpoint, count in Counter(self.each).items() if count > 1]
        if twice:
            raise ValueError(f"{twice[0]!r} more than once in {str(self)!r}; must name each planner once")

    @classmethod
    def parse(cls, text: str) -> Endpoints:
        """Read addresses separated by commas, without spaces.

        Raises
        ------
        ValueError
            One of them is no address, or named twice; the message says which one, and what is allowed.
        """
        parts = text.split(",")
        each: list[Endpoint] = []
        for number, part in enumerate(parts, start=1):
            try:
                each.append(Endpoint.parse(part))
            except ValueError as error:
                where = f"; it is number {number} of {text!r}" if len(parts) > 1 else ""
                raise ValueError(f"{error}{where}") from None
        return cls(each=tuple(each))

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self.each)

    def __len__(self) -> int:
        return len(self.each)

    def __str__(self) -> str:
        return ",".join(map(str, self.each))


@contextlib.contextmanager
def _told_of(text: str) -> Iterator[None]:
    """Have an error within say of which address it is."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{text!r}; {error}") from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
