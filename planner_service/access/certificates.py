"""The planner's certificate and key, and the authorities of its clients: whether TLS can be made with them."""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from planner_service import settings as names
from planner_service.access.errors import AccessError
from planner_service.access.facts import Facts, facts_of

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
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
        where = f"{names.TLS_CERT_FILE}={files.certificate}"
        text = _checked_certificates(chain, where)
        _check_key(chain, key, files)
        for content in authorities:
            _checked_certificates(content, f"{names.TLS_CLIENT_CA_FILE}={files.client_ca}")
        try:
            facts = facts_of(text)
        except ValueError as error:
            raise AccessError(f"{where}: its certificate cannot be read: {error}") from None
        if not facts.key:
            raise AccessError(
                f"{where}: is of a kind of key that clients do not take; must be RSA, or ECDSA on P-256 or P-384"
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


def _checked_certificates(content: bytes, where: str) -> str:
    """Return PEM certificates as text; raise where there are none, or one that cannot be read."""
    text = content.decode("ascii", "replace")  # there may be remarks between certificates
    found = _CERTIFICATE.findall(text)
    if not found:
        raise AccessError(f"{where}: holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")
    for number, pem in enumerate(found, start=1):
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=pem)
        except (ssl.SSLError, ValueError):
            raise AccessError(f"{where}: certificate {number} of {len(found)} in it cannot be read") from None
    return text


def _check_key(chain: bytes, key: bytes, files: TlsFiles) -> None:
    """Load both as a server does, from memory: the files may have changed since they were read."""
    where = f"{names.TLS_KEY_FILE}={files.key}"
    if b"ENCRYPTED" in key:
        raise AccessError(f"{where}: is encrypted; must be a key without a password")
    if b"PRIVATE KEY-----" not in key:
        raise AccessError(f"{where}: holds no private key (-----BEGIN PRIVATE KEY-----)")
    # The key comes first, as the certificate's file may hold one too, which must not be the one that is looked at.
    together = os.memfd_create("certificate")
    try:
        with os.fdopen(os.dup(together), "wb") as file:
            file.write(key + b"\n" + chain)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(f"/proc/self/fd/{together}")
    except ssl.SSLError as error:
        said = "does not fit" if error.reason == "KEY_VALUES_MISMATCH" else "cannot be used with"
        why = (error.reason or "no reason").replace("_", " ").lower()
        raise AccessError(
            f"{where}: {said} the certificate in {names.TLS_CERT_FILE}={files.certificate} ({why})"
        ) from None
    finally:
        os.close(together)
