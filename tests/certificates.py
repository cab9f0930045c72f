"""Certificates for tests, written into files as operators have them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import grpc
import trustme
from cryptography import x509

if TYPE_CHECKING:
    from pathlib import Path

HOST = "127.0.0.1"
YESTERDAY = datetime.now(UTC) - timedelta(days=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A certificate and its key, in files and as bytes."""

    certificate_file: Path
    key_file: Path
    chain: bytes
    key: bytes

    @property
    def serial(self) -> int:
        return x509.load_pem_x509_certificate(self.chain).serial_number

    def server_settings(self) -> dict[str, Path]:
        """The planner's settings that name these files."""
        return {"tls_cert_file": self.certificate_file, "tls_key_file": self.key_file}

    def server_environment(self) -> dict[str, str]:
        return {f"DIP_{name.upper()}": str(path) for name, path in self.server_settings().items()}

    def overwrite(self, other: Pair) -> None:
        """Put another certificate and key into these files."""
        self.certificate_file.write_bytes(other.chain)
        self.key_file.write_bytes(other.key)


class Authority:
    """An authority, its own certificate in a file."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._ca = trustme.CA()
        self._made = 0
        self.pem = self._ca.cert_pem.bytes()
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(self.pem)
        self._name = name

    def pair(self, *hosts: str, **how: Any) -> Pair:
        """Make a certificate of these names (by default of a planner on this machine), signed by the authority."""
        made = self._ca.issue_cert(*(hosts or (HOST, "localhost")), **how)
        self._made += 1
        stem = self._directory / f"{self._name}-{self._made}"
        pair = Pair(
            certificate_file=stem.with_suffix(".crt"),
            key_file=stem.with_suffix(".key"),
            chain=b"".join(pem.bytes() for pem in made.cert_chain_pems),
            key=made.private_key_pem.bytes(),
        )
        pair.certificate_file.write_bytes(pair.chain)
        pair.key_file.write_bytes(pair.key)
        return pair

    def trusted(self, client: Pair | None = None) -> grpc.ChannelCredentials:
        """What a client trusts that knows this authority, and shows of itself."""
        return grpc.ssl_channel_credentials(self.pem, client and client.key, client and client.chain)
