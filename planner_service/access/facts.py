"""When a certificate is valid and what its key is, read from its DER (RFC 5280, section 4.1).

Python's ssl tells this of certificates that a peer showed and that are valid, and not of one's own.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18

_KEYS: Final = {
    bytes.fromhex("06092a864886f70d010101 0500"): "RSA",
    bytes.fromhex("06072a8648ce3d0201 06082a8648ce3d030107"): "ECDSA on P-256",
    bytes.fromhex("06072a8648ce3d0201 06052b81040022"): "ECDSA on P-384",
}
"""Kinds of keys by their identifiers (RFC 3279, 5480): those that clients of gRPC take: neither Ed25519 nor P-521."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What clients mind of a certificate.

    Parameters
    ----------
    begins, ends
        When it is valid.
    key
        What its key is; empty: none that gRPC's clients take.
    """

    begins: datetime
    ends: datetime
    key: str


def facts_of(pem: str) -> Facts:
    """Read the first certificate of a PEM text.

    Raises
    ------
    ValueError
        It is no certificate.
    """
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    _, found, rest = pem.partition(begin)
    try:
        der = ssl.PEM_cert_to_DER_cert(f"{begin}{rest.partition(end)[0]}{end}") if found else b""
        certificate, _ = _taken(der, _SEQUENCE)
        fields, _ = _taken(certificate, _SEQUENCE)
        if fields[0] == _VERSION:
            fields = _skipped(fields)
        for _ in range(3):  # serial number, signature algorithm, issuer
            fields = _skipped(fields)
        times, fields = _taken(fields, _SEQUENCE)
        public_key, _ = _taken(_skipped(fields), _SEQUENCE)  # after the subject
        algorithm, _ = _taken(public_key, _SEQUENCE)
        return Facts(begins=_time(times), ends=_time(_skipped(times)), key=_KEYS.get(algorithm, ""))
    except IndexError:
        raise ValueError("it ends too early for a certificate") from None


def _time(der: bytes) -> datetime:
    value, _ = _taken(der, der[0])
    text = value.decode("ascii")
    if der[0] == _UTC_TIME:
        # Two digits of the year: 50 and above are of the 20th century.
        text = ("19" if text >= "50" else "20") + text
    elif der[0] != _GENERALIZED_TIME:
        raise ValueError("it holds no time where one must be")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _taken(der: bytes, tag: int) -> tuple[bytes, bytes]:
    """Split off the content of the first element, which must have this tag."""
    if der[0] != tag:
        raise ValueError(f"it holds an element of tag {der[0]:#x} where one of {tag:#x} must be")
    length, start = der[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[2:start])
    if len(der) < start + length:
        raise IndexError("an element is longer than what holds it")
    return der[start : start + length], der[start + length :]


def _skipped(der: bytes) -> bytes:
    return _taken(der, der[0])[1]
