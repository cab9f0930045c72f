"""TLS as gRPC's servers speak it, with the certificates that are in force when a client connects.

Versions and ciphers are gRPC's: TLS 1.2 and 1.3, with forward secrecy and authenticated encryption alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import grpc

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner_service.access import Access, Certificates


def server_credentials(access: Access) -> grpc.ServerCredentials | None:
    """Make a server's credentials; None where there is no TLS.

    gRPC asks for the certificates at each handshake. Connections that are there, and their streams, keep theirs.
    """
    first = access.certificates
    if first is None:
        return None
    shown = first

    def changed() -> grpc.ServerCertificateConfiguration | None:
        """Return what is new; None lets gRPC keep what it has parsed, whoever connects however often."""
        nonlocal shown
        if access.certificates is None or access.certificates is shown:
            return None
        shown = access.certificates
        return _configuration(shown)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(first),
        cast("Callable[[], grpc.ServerCertificateConfiguration]", changed),  # the stubs do not know None
        require_client_authentication=first.client_ca is not None,
    )


def _configuration(certificates: Certificates) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certificates.key, certificates.chain)], root_certificates=certificates.client_ca
    )
