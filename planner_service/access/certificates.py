"""The planner's certificate and key, and the authorities of its clients: whether TLS can be made with them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from dip.connecting.pem import PemError, check_certificates, check_key

from planner_service import settings as names
from planner_service.access.errors import AccessError
from planner_service.access.facts import Facts, facts_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

_LEAST_LEFT: Final = timedelta(days=14)
_LEAST_PART_LEFT: Final = 10  # short-lived ones are replaced when a half or a third is left


@dataclass(frozen=True, kw_only=True, slots=True)
class TlsFiles:
    """Where the files are."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def by_setting(self) -> dict[str, Path]:
        """Return the files by the settings that name them: certificate, key, and authorities of clients if any."""
        files = {names.TLS_CERT_FILE: self.certificate, names.TLS_KEY_FILE: self.key}
        return files if self.client_ca is None else files | {names.TLS_CLIENT_CA_FILE: self.client_ca}


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificates:
    """What TLS is made with, as PEM, all of it checked.

    Parameters
    ----------
    chain
        The planner's certificate, and those between it and an authority.
    key
        Its private key.
    client_ca
        Authorities whose certificates clients must show; None: they need not.
    facts
        What clients mind of the planner's certificate.
    """

    chain: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None
    facts: Facts

    @classmethod
    def read(cls, files: TlsFiles, contents: tuple[bytes, ...]) -> Certificates:
        """Make them of what the files hold, in the order of `TlsFiles.by_setting`.

        Raises
        ------
        AccessError
            Naming the setting, the file, and what is wrong with it.
        """
        chain, key, *authorities = contents
        chain_file = f"{names.TLS_CERT_FILE}={files.certificate}"
        with _naming(chain_file):
            check_certificates(chain)
        with _naming(f"{names.TLS_KEY_FILE}={files.key}"):
            check_key(key, chain, chain_file=chain_file)
        with _naming(f"{names.TLS_CLIENT_CA_FILE}={files.client_ca}"):
            for content in authorities:
                check_certificates(content)
        try:
            facts = facts_of(chain.decode("ascii", "replace"))
        except ValueError as error:
            raise AccessError(f"{chain_file}: its certificate cannot be read: {error}") from None
        if not facts.key:
            raise AccessError(
                f"{chain_file}: is of a kind of key that clients do not take; must be RSA, or ECDSA on P-256 or P-384"
            )
        return cls(chain=chain, key=key, client_ca=authorities[0] if authorities else None, facts=facts)

    def trouble(self, now: datetime) -> str:
        """Say what clients find, or soon will, wrong with the certificate's dates; empty: nothing."""
        begins, ends = self.facts.begins, self.facts.ends
        if now < begins:
            return f"is valid from {begins:%Y-%m-%d %H:%M} UTC only: clients refuse it until then"
        if now >= ends:
            return f"ended at {ends:%Y-%m-%d %H:%M} UTC: clients refuse it; replace it, it is read again by itself"
        if ends - now < min(_LEAST_LEFT, (ends - begins) / _LEAST_PART_LEFT):
            return f"ends at {ends:%Y-%m-%d %H:%M} UTC, and nobody has replaced it: clients will refuse it from then on"
        return ""


@contextlib.contextmanager
def _naming(file: str) -> Iterator[None]:
    """Say of which file it is what is wrong."""
    try:
        yield
    except PemError as error:
        raise AccessError(f"{file}: {error}") from None
