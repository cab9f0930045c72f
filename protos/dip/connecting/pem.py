"""What files in PEM hold, looked at before TLS is made with it: gRPC says little of what it cannot use."""

from __future__ import annotations

import os
import re
import ssl
from typing import Final

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class PemError(ValueError):
    """What is wrong with a file, as words that its name goes before."""


def check_certificates(content: bytes) -> None:
    """Check that there are certificates, and that each can be read; remarks between them are let alone.

    Raises
    ------
    PemError
    """
    found = _CERTIFICATE.findall(content.decode("ascii", "replace"))
    if not found:
        raise PemError("holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")
    for number, certificate in enumerate(found, start=1):
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificate)
        except (ssl.SSLError, ValueError):
            raise PemError(f"certificate {number} of {len(found)} in it cannot be read") from None


def check_key(key: bytes, chain: bytes, *, chain_file: str) -> None:
    """Check that a key is the one of the first certificate of a chain.

    Both are loaded as TLS loads them, from memory: the files may have changed since they were read.

    Parameters
    ----------
    key, chain
        What the files hold.
    chain_file
        What the message calls the chain's file.

    Raises
    ------
    PemError
    """
    if b"ENCRYPTED" in key:
        raise PemError("is encrypted; must be a private key in PEM without a password")
    if b"PRIVATE KEY-----" not in key:
        raise PemError("holds no private key in PEM (-----BEGIN PRIVATE KEY-----)")
    together = os.memfd_create("key and certificates")
    try:
        # The key comes first: the chain's file may hold one too, which must not be the one that is looked at.
        with os.fdopen(os.dup(together), "wb") as file:
            file.write(key + b"\n" + chain)
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(f"/proc/self/fd/{together}")
    except ssl.SSLError as error:
        said = "does not fit" if error.reason == "KEY_VALUES_MISMATCH" else "cannot be used with"
        why = (error.reason or "no reason").replace("_", " ").lower()
        raise PemError(f"{said} the first certificate in {chain_file} ({why})") from None
    finally:
        os.close(together)
