"""Why a planner is not reached, or turns a client away, for people: gRPC and OpenSSL say it in their own words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import grpc

from dip.connecting.variables import CA_FILE, CERT_FILE, KEY_FILE, PLANNER_ENDPOINT, TOKEN_FILE

if TYPE_CHECKING:
    from dip.connecting.endpoint import Endpoint
    from dip.connecting.files import ClientFiles
    from dip.connecting.tls import Tls

# In gRPC's words (1.81 to 1.85), and which of the planner's settings these are about; the first that is found counts.
_VERIFICATION: Final = (
    (r"certificate has expired", "the planner's certificate has expired; renew its DIP_TLS_CERT_FILE"),
    (r"certificate is not yet valid", "the planner's certificate is not valid yet; compare the clocks"),
    (r"CERTIFICATE_VERIFY_FAILED", f"the planner's certificate comes from no authority in {CA_FILE}"),
    (
        r"Hostname Verification Check failed|not in peer certificate",
        f"the planner's certificate does not name the host of {PLANNER_ENDPOINT}; it must be one of its subject "
        "alternative names",
    ),
    (
        r"WRONG_VERSION_NUMBER|HTTP_REQUEST|RECORD_LAYER",
        f"there is no TLS at that address; give the planner a DIP_TLS_CERT_FILE, or unset {CA_FILE}",
    ),
)
_CUT_OFF: Final = re.compile(r"Socket closed|Connection reset|Broken pipe|ALERT")
_CONNECTING: Final = "failed to connect"


def explanation(details: str, endpoint: Endpoint, tls: Tls | None) -> str:
    """Say why a connection was not made.

    Parameters
    ----------
    details
        What gRPC said, with UNAVAILABLE.
    endpoint
        Where the planner was looked for.
    tls
        What TLS was made with; None: there was none.

    Returns
    -------
    str
        The cause and its remedy; empty where they are not TLS's.
    """
    if endpoint.unix or _CONNECTING not in details:
        return ""
    if tls is not None:
        for pattern, meaning in _VERIFICATION:
            if re.search(pattern, details):
                return meaning
    if not _CUT_OFF.search(details):
        return ""
    if tls is None:
        return f"who listens there ends the connection, as a planner with TLS does; set {CA_FILE}"
    if tls.certificate is None:
        return (
            f"the planner ends the connection, as one does that asks for a client's certificate; set {CERT_FILE} and "
            f"{KEY_FILE}"
        )
    return (
        f"the planner ends the connection, as one does that does not trust {CERT_FILE}: it may have expired, or come "
        "from no authority in the planner's DIP_TLS_CLIENT_CA_FILE"
    )


def advice(code: grpc.StatusCode, files: ClientFiles) -> str:
    """Say what to set right where a planner turns a client away; empty where the status says something else.

    Parameters
    ----------
    code
        The status of the call.
    files
        What the client connected with.
    """
    if code == grpc.StatusCode.UNAUTHENTICATED and not files.token_file:
        return f"set {TOKEN_FILE} to the file of a token that its DIP_ACCESS_FILE names"
    if code == grpc.StatusCode.UNAUTHENTICATED:
        return f"the token in {TOKEN_FILE} {files.token_file!r} must be one that its DIP_ACCESS_FILE names"
    if code == grpc.StatusCode.PERMISSION_DENIED and files.token_file:
        return f"its DIP_ACCESS_FILE must give the token in {TOKEN_FILE} {files.token_file!r} this job and role"
    return ""
