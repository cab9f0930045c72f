"""The variables of the environment that say how a client, an agent or a command alike, connects to its planners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PLANNER_ENDPOINT: Final = "DIP_PLANNER_ENDPOINT"
CA_FILE: Final = "DIP_TLS_CA_FILE"
CERT_FILE: Final = "DIP_CLIENT_CERT_FILE"
KEY_FILE: Final = "DIP_CLIENT_KEY_FILE"
TOKEN_FILE: Final = "DIP_TOKEN_FILE"
ALLOW_INSECURE: Final = "DIP_ALLOW_INSECURE"

SYSTEM: Final = "system"
"""What `CA_FILE` holds for the authorities that this machine trusts anyway."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable:
    """One variable of the environment, as people read about it.

    Parameters
    ----------
    name
        Its name.
    default
        What holds where it is unset or empty, in words: ``unset``, or a value as it would be written.
    meaning
        What it is for, and what is allowed: one or more sentences.
    """

    name: str
    default: str
    meaning: str


VARIABLES: Final = (
    Variable(
        name=PLANNER_ENDPOINT,
        default="unset",
        meaning="host:port or unix:///path of the planner; or of several that share a store, separated by commas: the "
        "first is preferred, the others stand in for it. Unset: every iteration runs the fixed fallback schedule.",
    ),
    Variable(
        name=CA_FILE,
        default="unset",
        meaning="The authorities (PEM) that the planner's certificate must come from, or `system` for those that this "
        "machine trusts. With it, connections to host:port are made with TLS; UNIX sockets never are. Read again when "
        "it changes.",
    ),
    Variable(
        name=CERT_FILE,
        default="unset",
        meaning="The client's own certificate chain (PEM), where the planner asks for one (mTLS); needs "
        f"{KEY_FILE}, and asks for TLS as {CA_FILE} does. Read again when it changes.",
    ),
    Variable(name=KEY_FILE, default="unset", meaning=f"The private key of {CERT_FILE} (PEM, not encrypted)."),
    Variable(
        name=TOKEN_FILE,
        default="unset",
        meaning="A file with the bearer token that says who calls: one line of visible ASCII characters. Read again "
        "for every call, so that a token is changed by changing the file.",
    ),
    Variable(
        name=ALLOW_INSECURE,
        default="false",
        meaning="true: send the token beyond this machine without TLS, where a service mesh or the network itself "
        "keeps it from others' eyes.",
    ),
)
