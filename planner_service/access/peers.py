"""Who calls where nobody brings a token: the peer's certificate, its socket or its address."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from planner_service.access.caller import Caller, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MAPPED: Final = "::ffff:"
"""What stands before an IPv4 address at a socket for both."""
_SHOWN_CHARACTERS: Final = 253
_DIGEST_DIGITS: Final = 16
_PLAIN: Final = "!$&'()*+,/:;=?@[] "
"""Kept of a certificate's name, beside letters, digits and ``_.-~``; the rest is percent-encoded, as logs show it."""


def peer_caller(peer: str, auth_context: Mapping[str, Iterable[bytes]]) -> Caller:
    """Identify a peer that brings no token; it may do everything with all jobs.

    Parameters
    ----------
    peer
        As gRPC writes it: ``ipv4:10.0.0.1:4242``, ``ipv6:%5B::1%5D:4242``, ``unix:``.
    auth_context
        What TLS found out about it; empty without a client certificate that was asked for and verified.
    """
    name = _certificate_name(auth_context)
    return Caller(name=f"certificate:{name}" if name else _place(peer), roles=frozenset({Role.OPERATOR}), jobs=("*",))


def _certificate_name(auth_context: Mapping[str, Iterable[bytes]]) -> str:
    """Return the first alternative name, or the common name, of a client's certificate; empty where there is none."""
    for key in ("x509_subject_alternative_name", "x509_common_name"):
        for value in auth_context.get(key, ()):
            if value:
                return _shortened(quote(value, safe=_PLAIN))
    return ""


def _shortened(name: str) -> str:
    """Return a name that can be shown; of two that begin alike, each stays one of its own."""
    if len(name) <= _SHOWN_CHARACTERS:
        return name
    digest = sha256(name.encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{name[: _SHOWN_CHARACTERS - 1 - _DIGEST_DIGITS]}~{digest}"


def _place(peer: str) -> str:
    family, _, where = peer.partition(":")
    if family.startswith("unix"):
        return "unix"
    host = unquote(where).rpartition(":")[0].strip("[]")
    return f"address:{host.removeprefix(_MAPPED) if '.' in host else host}"
