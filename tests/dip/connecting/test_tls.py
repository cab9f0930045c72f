"""TLS files: what is read, and readable errors for what gRPC would not say a word about."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
from certificates import Authority
from cryptography.hazmat.primitives import serialization
from dip.connecting import ClientFiles, ClientFilesError
from dip.connecting.tls import Tls
from dip.connecting.variables import CA_FILE, CERT_FILE, KEY_FILE, SYSTEM

if TYPE_CHECKING:
    from pathlib import Path

    from certificates import Pair


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.pair("agent")


@pytest.fixture
def files(authority: Authority, pair: Pair) -> ClientFiles:
    return ClientFiles(ca_file=str(authority.file), cert_file=str(pair.certificate_file), key_file=str(pair.key_file))


def refusal(files: ClientFiles) -> str:
    with pytest.raises(ClientFilesError) as caught:
        Tls.read(files).check(files)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_the_files_hold_is_read_and_good(files: ClientFiles, authority: Authority, pair: Pair) -> None:
    tls = Tls.read(files)
    tls.check(files)
    assert tls == Tls(authorities=authority.pem, certificate=pair.chain, key=pair.key)
    assert tls.credentials() is not None


def test_authorities_alone_are_enough(authority: Authority) -> None:
    files = ClientFiles(ca_file=str(authority.file))
    Tls.read(files).check(files)
    assert Tls.read(files) == Tls(authorities=authority.pem)


def test_text_between_certificates_is_let_alone(files: ClientFiles, authority: Authority, tmp_path: Path) -> None:
    authority.file.write_bytes("# Autorität 1\n".encode() + authority.pem + b"# 2\n" + Authority(tmp_path, "b").pem)
    Tls.read(files).check(files)


def test_no_secret_is_shown(files: ClientFiles, pair: Pair) -> None:
    shown = repr(Tls.read(files))
    assert all(line not in shown for line in pair.key.decode().splitlines())


@pytest.mark.parametrize("held", [b"nothing\n", b"-----BEGIN CERTIFICATE-----\nhalf"])
def test_a_file_without_a_certificate_is_named(
    files: ClientFiles, authority: Authority, pair: Pair, held: bytes
) -> None:
    pair.certificate_file.write_bytes(held)
    assert refusal(files) == (
        f"{CERT_FILE}: {str(pair.certificate_file)!r}; holds no certificate in PEM (-----BEGIN CERTIFICATE-----)"
    )
    authority.file.write_bytes(held)
    assert refusal(files).startswith(f"{CA_FILE}: {str(authority.file)!r}; holds no certificate in PEM")


def test_a_broken_one_among_certificates_is_named(files: ClientFiles, authority: Authority) -> None:
    broken = b"-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
    authority.file.write_bytes(authority.pem + broken)
    assert refusal(files) == f"{CA_FILE}: {str(authority.file)!r}; certificate 2 of 2 in it cannot be read"


def test_a_key_of_another_certificate_is_refused(files: ClientFiles, authority: Authority, pair: Pair) -> None:
    pair.key_file.write_bytes(authority.pair("other").key)
    assert refusal(files) == (
        f"{KEY_FILE}: {str(pair.key_file)!r}; does not fit the first certificate in {CERT_FILE} "
        f"{str(pair.certificate_file)!r} (key values mismatch)"
    )


def test_a_key_beside_the_certificate_is_not_the_one_that_is_looked_at(
    files: ClientFiles, authority: Authority, pair: Pair
) -> None:
    pair.certificate_file.write_bytes(pair.key + pair.chain)
    Tls.read(files).check(files)
    pair.key_file.write_bytes(authority.pair("other").key)
    assert "does not fit the first certificate" in refusal(files)


def test_what_is_no_key_is_refused(files: ClientFiles, pair: Pair) -> None:
    pair.key_file.write_bytes(pair.chain)
    assert refusal(files).startswith(f"{KEY_FILE}: {str(pair.key_file)!r}; holds no private key in PEM")
    pair.key_file.write_bytes(b"-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----\n")
    assert "cannot be used with the first certificate" in refusal(files)


def test_an_encrypted_key_is_refused_without_asking_for_its_password(files: ClientFiles, pair: Pair) -> None:
    key = serialization.load_pem_private_key(pair.key, password=None)
    pair.key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"password"),
        )
    )
    assert "is encrypted; must be a private key in PEM without a password" in refusal(files)


def test_the_authorities_of_the_system_are_taken_where_they_are_asked_for(
    authority: Authority, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ssl.get_default_verify_paths().openssl_cafile_env, str(authority.file))
    own = ClientFiles(cert_file=str(pair.certificate_file), key_file=str(pair.key_file))
    for files in (ClientFiles(ca_file=SYSTEM), own):
        tls = Tls.read(files)
        tls.check(files)
        assert tls.authorities == authority.pem


def test_a_system_with_a_folder_of_authorities_or_with_none(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ssl.get_default_verify_paths()
    folder = tmp_path / "certs"
    folder.mkdir()
    monkeypatch.setenv(paths.openssl_cafile_env, str(tmp_path / "none"))
    monkeypatch.setenv(paths.openssl_capath_env, str(folder))
    files = ClientFiles(ca_file=SYSTEM)
    assert "this machine has no certificate authorities" in refusal(files)
    other = Authority(tmp_path, "other").pem
    (folder / "4a6481c9.0").write_bytes(authority.pem)
    (folder / "4a6481c9.1").write_bytes(other)
    tls = Tls.read(files)
    tls.check(files)
    assert tls.authorities == authority.pem + b"\n" + other


def test_files_that_are_replaced_while_they_are_read_are_read_again(
    files: ClientFiles, authority: Authority, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = authority.pair("agent")
    once = Tls._read_once

    def read_and_replace(read: ClientFiles) -> Tls:
        """As if the key had been replaced between two reads."""
        found = once(read)
        monkeypatch.setattr(Tls, "_read_once", once)
        pair.overwrite(new)
        return Tls(authorities=found.authorities, certificate=found.certificate, key=new.key)

    monkeypatch.setattr(Tls, "_read_once", read_and_replace)
    tls = Tls.read(files)
    tls.check(files)
    assert (tls.certificate, tls.key) == (new.chain, new.key)
