"""Shows that certificate files are judged before they are used, and what is wrong with them in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from certificates import Authority, Pair
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from trustme import KeyType

from planner_service.access import AccessError, Certificates
from planner_service.access.certificates import TlsFiles

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def read(pair: Pair, *, ca: Path | None = None, chain: bytes | None = None, key: bytes | None = None) -> Certificates:
    files = TlsFiles(certificate=pair.certificate_file, key=pair.key_file, client_ca=ca)
    contents = [pair.chain if chain is None else chain, pair.key if key is None else key]
    return Certificates.read(files, (*contents, *([ca.read_bytes()] if ca else [])))


def test_good_files(authority: Authority) -> None:
    pair = authority.pair(not_after=datetime(2040, 1, 2, tzinfo=UTC))
    certificates = read(pair, ca=authority.file)
    assert (certificates.chain, certificates.key) == (pair.chain, pair.key)
    assert certificates.client_ca == authority.pem
    assert certificates.facts.ends == datetime(2040, 1, 2, tzinfo=UTC)
    assert read(pair).client_ca is None
    assert "PRIVATE" not in repr(certificates)


def test_keys_of_other_formats(authority: Authority) -> None:
    pair = authority.pair(key_type=KeyType.RSA)
    key = load_pem_private_key(pair.key, None)
    for form in (PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL):
        pem = key.private_bytes(Encoding.PEM, form, NoEncryption())
        assert read(pair, key=pem).key == pem


def test_key_beside_the_certificate_is_not_the_one_that_is_looked_at(authority: Authority) -> None:
    """A certificate's file may hold its key too; what counts is the key's file."""
    pair, other = authority.pair(), authority.pair()
    together = pair.key + pair.chain
    assert read(pair, chain=together).chain == together
    with pytest.raises(AccessError, match="does not fit"):
        read(pair, chain=together, key=other.key)


def test_remarks_between_certificates_are_let_alone(authority: Authority) -> None:
    pair = authority.pair()
    remarked = "# Főtanúsítvány\n".encode() + pair.chain + b"\xff\n" + authority.pem
    assert read(pair, chain=remarked).chain == remarked


def test_what_is_wrong_is_said(authority: Authority, tmp_path: Path) -> None:
    pair, other = authority.pair(), authority.pair()
    private = load_pem_private_key(pair.key, None)
    locked = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    old_locked = private.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"x"))
    torn = pair.chain[: len(pair.chain) // 2]
    spoilt = pair.chain.replace(b"MII", b"AAA", 1)
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    cert_at, key_at = f"DIP_TLS_CERT_FILE={pair.certificate_file}: ", f"DIP_TLS_KEY_FILE={pair.key_file}: "
    for how, says in (
        ({"chain": b""}, f"{cert_at}holds no certificate in PEM (-----BEGIN CERTIFICATE-----)"),
        ({"chain": torn}, f"{cert_at}holds no certificate"),
        ({"chain": b"\x30\x82\xff"}, f"{cert_at}holds no certificate in PEM"),
        ({"chain": pair.key}, f"{cert_at}holds no certificate"),
        ({"chain": spoilt}, f"{cert_at}certificate 1 of 1 in it cannot be read"),
        ({"chain": pair.chain + spoilt}, f"{cert_at}certificate 2 of 2 in it cannot be read"),
        ({"key": b""}, f"{key_at}holds no private key in PEM (-----BEGIN PRIVATE KEY-----)"),
        ({"key": pair.chain}, f"{key_at}holds no private key"),
        ({"key": pair.key[:-60]}, f"{key_at}cannot be used with the first certificate"),
        (
            {"key": other.key},
            f"{key_at}does not fit the first certificate in DIP_TLS_CERT_FILE={pair.certificate_file}",
        ),
        ({"key": locked}, f"{key_at}is encrypted; must be a private key in PEM without a password"),
        ({"key": old_locked}, f"{key_at}is encrypted"),
        ({"ca": empty}, f"DIP_TLS_CLIENT_CA_FILE={empty}: holds no certificate"),
    ):
        with pytest.raises(AccessError) as caught:
            read(pair, **how)
        assert str(caught.value).startswith(says)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("life", "left", "says"),
    [
        (timedelta(days=90), timedelta(days=30), ""),
        (timedelta(days=90), timedelta(days=8), "ends at 2030-01-01 00:00 UTC, and nobody has replaced it"),
        (timedelta(days=3650), timedelta(days=15), ""),
        (timedelta(days=3650), timedelta(days=13), "ends at 2030-01-01 00:00 UTC"),
        (timedelta(hours=1), timedelta(minutes=30), ""),
        (timedelta(hours=1), timedelta(minutes=5), "ends at 2030-01-01 00:00 UTC"),
        (timedelta(days=90), timedelta(0), "ended at 2030-01-01 00:00 UTC: clients refuse it"),
        (timedelta(days=90), timedelta(days=-400), "ended at 2030-01-01 00:00 UTC"),
        (timedelta(days=90), timedelta(days=91), "is valid from 2029-10-03 00:00 UTC only"),
    ],
)
def test_dates_that_clients_mind(authority: Authority, life: timedelta, left: timedelta, says: str) -> None:
    ends = datetime(2030, 1, 1, tzinfo=UTC)
    certificates = read(authority.pair(not_before=ends - life, not_after=ends))
    assert certificates.trouble(ends - left).startswith(says)
    assert bool(certificates.trouble(ends - left)) == bool(says)
