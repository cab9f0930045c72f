"""What TLS is made with: the authorities that are trusted, and the client's own certificate."""

from __future__ import annotations

import contextlib
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc

from dip.connecting.files import ClientFilesError, read
from dip.connecting.pem import PemError, check_certificates, check_key
from dip.connecting.variables import CA_FILE, CERT_FILE, KEY_FILE, SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dip.connecting.files import ClientFiles

MAX_PEM_BYTES: Final = 4 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """The contents of the files, PEM as it is.

    Parameters
    ----------
    authorities
        Whom the planner's certificate must come from.
    certificate, key
        The client's own, both or none.
    """

    authorities: bytes = field(repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)

    @classmethod
    def read(cls, files: ClientFiles) -> Tls:
        """Read the files, all of one time: where they are being replaced meanwhile, they are read again.

        Raises
        ------
        ClientFilesError
            One of them cannot be read.
        """
        found = cls._read_once(files)
        for _ in range(3):
            before, found = found, cls._read_once(files)
            if found == before:
                break
        return found

    @classmethod
    def _read_once(cls, files: ClientFiles) -> Tls:
        own_authorities = files.ca_file and files.ca_file != SYSTEM
        authorities = read(CA_FILE, files.ca_file, at_most=MAX_PEM_BYTES) if own_authorities else _of_the_system()
        if not files.cert_file:
            return cls(authorities=authorities)
        return cls(
            authorities=authorities,
            certificate=read(CERT_FILE, files.cert_file, at_most=MAX_PEM_BYTES),
            key=read(KEY_FILE, files.key_file, at_most=MAX_PEM_BYTES),
        )

    def check(self, files: ClientFiles) -> None:
        """Check what was read from these files.

        Raises
        ------
        ClientFilesError
            It is no PEM, or the key is not the certificate's.
        """
        with _naming(CA_FILE, files.ca_file):
            check_certificates(self.authorities)
        if self.certificate is None or self.key is None:
            return
        with _naming(CERT_FILE, files.cert_file):
            check_certificates(self.certificate)
        with _naming(KEY_FILE, files.key_file):
            check_key(self.key, self.certificate, chain_file=f"{CERT_FILE} {files.cert_file!r}")

    def credentials(self) -> grpc.ChannelCredentials:
        """Make gRPC's credentials, which never change."""
        return grpc.ssl_channel_credentials(self.authorities, self.key, self.certificate)


def _of_the_system() -> bytes:
    """Read the authorities that this machine trusts; ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` are heeded, as usual."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile:
        return read(f"{CA_FILE}={SYSTEM}", paths.cafile, at_most=MAX_PEM_BYTES)
    hashed = sorted(Path(paths.capath).glob("*.[0-9]")) if paths.capath else []
    if not hashed:
        raise ClientFilesError(
            f"{CA_FILE}: {SYSTEM!r}; this machine has no certificate authorities, at {paths.openssl_cafile} or in "
            f"{paths.openssl_capath}: install ca-certificates, or name a file"
        )
    return b"\n".join(read(f"{CA_FILE}={SYSTEM}", str(path), at_most=MAX_PEM_BYTES) for path in hashed)


@contextlib.contextmanager
def _naming(variable: str, path: str) -> Iterator[None]:
    """Say of which file it is what is wrong."""
    try:
        yield
    except PemError as error:
        raise ClientFilesError(f"{variable}: {path!r}; {error}") from None
