"""Where a planner listens: ``host:port`` or ``unix:///path``."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

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
            It is neither ``host:port`` nor ``unix:///path``; the message says what is allowed.
        """
        if text.startswith("unix:"):
            if not text.startswith("unix:///") or text.endswith("/"):
                raise ValueError(f"{text!r}; must be {ALLOWED}")
            return cls(target=text, local=True)
        match = _HOST_PORT.fullmatch(text)
        if match is None or not 1 <= int(match["port"]) <= 65535:
            raise ValueError(f"{text!r}; must be {ALLOWED}")
        return cls(target=text, local=_is_loopback(match["v6"] or match["host"]))

    def __str__(self) -> str:
        return self.target


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
