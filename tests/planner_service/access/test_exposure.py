"""Shows that no planner is open to the network unless somebody said so, and that what to set is told in one line."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from planner_service.access import AccessError
from planner_service.access.exposure import check_exposure, is_beyond_this_machine
from planner_service.settings import Settings

FILE = Path("/some/file")
TLS = {"tls_cert_file": FILE, "tls_key_file": FILE}
ANYWHERE = "0.0.0.0:50061"


@pytest.mark.parametrize(
    ("address", "beyond"),
    [
        ("127.0.0.1:0", False),
        ("127.8.7.6:50061", False),
        ("[::1]:50061", False),
        ("localhost:50061", False),
        ("unix:///run/planner.sock", False),
        ("0.0.0.0:50061", True),
        ("[::]:50061", True),
        ("10.1.2.3:50061", True),
        ("[fe80::1]:50061", True),
    ],
)
def test_addresses(address: str, beyond: bool) -> None:
    assert is_beyond_this_machine(address) is beyond


def test_what_nobody_can_look_up_may_be_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert is_beyond_this_machine("node-7:50061")


def unknown(*_: object, **__: object) -> None:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.mark.parametrize(("addresses", "beyond"), [(["127.0.0.1"], False), (["127.0.0.1", "10.0.0.7"], True)])
def test_names_count_by_all_that_they_stand_for(
    addresses: list[str], beyond: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 50061)) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert is_beyond_this_machine("node-7:50061") is beyond


@pytest.mark.parametrize(
    "held",
    [
        {"listen": "127.0.0.1:0"},
        {"listen": "127.0.0.1:0", "access_file": FILE},
        {"listen": "unix:///run/s", "access_file": FILE},
        {"listen": ANYWHERE, "access_file": FILE} | TLS,
        {"listen": ANYWHERE, "tls_client_ca_file": FILE, "access_file": FILE} | TLS,
    ],
)
def test_good(held: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    check_exposure(Settings(**held))
    assert not caplog.records


def test_certificates_alone_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    check_exposure(Settings(listen=ANYWHERE, tls_client_ca_file=FILE, **TLS))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "in DIP_TLS_CLIENT_CA_FILE may do everything with all jobs; DIP_ACCESS_FILE would" in record.getMessage()


@pytest.mark.parametrize(
    ("held", "says", "may_be_allowed"),
    [
        ({"listen": ANYWHERE}, "anybody there may call; set DIP_ACCESS_FILE or DIP_TLS_CLIENT_CA_FILE", True),
        ({"listen": ANYWHERE} | TLS, "anybody there may call; set DIP_ACCESS_FILE or DIP_TLS_CLIENT_CA_FILE", True),
        ({"listen": ANYWHERE, "access_file": FILE}, "tokens would travel in the clear; set DIP_TLS_CERT_FILE", True),
        ({"tls_cert_file": FILE}, "DIP_TLS_CERT_FILE is set, DIP_TLS_KEY_FILE is not", False),
        ({"tls_key_file": FILE}, "DIP_TLS_KEY_FILE is set, DIP_TLS_CERT_FILE is not", False),
        ({"tls_client_ca_file": FILE}, "DIP_TLS_CLIENT_CA_FILE is set, DIP_TLS_CERT_FILE and", False),
        ({"listen": "unix:///run/s"} | TLS, "a UNIX socket, which never speaks TLS: DIP_SOCKET_MODE", False),
    ],
)
def test_refused(held: dict[str, Any], says: str, may_be_allowed: bool, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(AccessError) as caught:
        check_exposure(Settings(**held))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert ("DIP_ALLOW_INSECURE=true" in str(caught.value)) is may_be_allowed
    allowed = Settings(**held, allow_insecure=True)
    if not may_be_allowed:
        with pytest.raises(AccessError):
            check_exposure(allowed)
        return
    check_exposure(allowed)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"DIP_LISTEN={ANYWHERE}" in record.getMessage()
