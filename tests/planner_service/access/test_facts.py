"""Shows that a certificate is read as a library of cryptography reads it, whatever it holds."""

from __future__ import annotations

import contextlib
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from planner_service.access.facts import facts_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes

PEM = trustme.CA().issue_cert("localhost").cert_chain_pems[0].bytes().decode()
KEY = ec.generate_private_key(ec.SECP256R1())
moments = st.datetimes(datetime(1950, 1, 1), datetime(2200, 1, 1)).map(
    lambda when: when.replace(microsecond=0, tzinfo=UTC)
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    begins=moments,
    days=st.integers(0, 80_000),
    serial=st.integers(1, 2**159 - 1),
    name=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=16),
)
def test_dates_of_any_certificate(begins: datetime, days: int, serial: int, name: str) -> None:
    ends = begins + timedelta(days=days)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(subject, subject, KEY.public_key(), serial, begins, ends)
    made = builder.sign(KEY, hashes.SHA256())
    found = facts_of(f"# a remark\n{pem_of(made)}\n{pem_of(made)}")
    assert (found.begins, found.ends) == (made.not_valid_before_utc, made.not_valid_after_utc) == (begins, ends)


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (rsa.generate_private_key(65537, 2048), "RSA"),
        (ec.generate_private_key(ec.SECP256R1()), "ECDSA on P-256"),
        (ec.generate_private_key(ec.SECP384R1()), "ECDSA on P-384"),
        (ec.generate_private_key(ec.SECP521R1()), ""),
        (ed25519.Ed25519PrivateKey.generate(), ""),
    ],
)
def test_kinds_of_keys(key: CertificateIssuerPrivateKeyTypes, kind: str) -> None:
    name, now = x509.Name([]), datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now)
    made = builder.sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    assert facts_of(pem_of(made)).key == kind


def test_first_certificate_of_a_chain_counts() -> None:
    ca = trustme.CA()
    leaf = ca.issue_cert("localhost", not_after=datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC))
    chain = leaf.cert_chain_pems[0].bytes().decode() + ca.cert_pem.bytes().decode()
    assert facts_of(chain).ends == datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_spoilt_certificate_is_no_other_error(data: st.DataObject) -> None:
    der = bytearray(ssl.PEM_cert_to_DER_cert(PEM))
    for _ in range(data.draw(st.integers(1, 3))):
        der[data.draw(st.integers(0, min(150, len(der) - 1)))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(der)))
    with contextlib.suppress(ValueError):
        facts_of(ssl.DER_cert_to_PEM_cert(bytes(der[:cut])))


@pytest.mark.parametrize(
    "text", ["", "-----BEGIN CERTIFICATE-----", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"]
)
def test_no_certificate(text: str) -> None:
    with pytest.raises(ValueError, match="it "):
        facts_of(text)


def pem_of(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
