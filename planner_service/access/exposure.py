"""Whether settings let others in than those who are meant: refused, unless they say that this is wanted."""

from __future__ import annotations

import ipaddress
import logging
import socket
from typing import TYPE_CHECKING

from planner_service import settings as names
from planner_service.access.errors import AccessError

if TYPE_CHECKING:
    from planner_service.settings import Settings

_log = logging.getLogger(__name__)

_UNIX = "unix://"


def check_exposure(settings: Settings) -> None:
    """Check that who may call is decided wherever others than this machine's users can connect.

    Raises
    ------
    AccessError
        Saying what to set.
    """
    _check_together(settings)
    fault = _exposed(settings)
    if fault and not settings.allow_insecure:
        raise AccessError(
            f"{fault}, or {names.ALLOW_INSECURE}=true (dip serve --allow-insecure) where the network, or a service "
            "mesh, sees to it"
        )
    if fault:
        _log.warning("%s=true: %s", names.ALLOW_INSECURE, fault.partition(";")[0])
    if settings.tls_client_ca_file is not None and settings.access_file is None:
        _log.warning(
            "every certificate of the authorities in %s may do everything with all jobs; %s would say who may do what",
            names.TLS_CLIENT_CA_FILE,
            names.ACCESS_FILE,
        )


def is_beyond_this_machine(address: str) -> bool:
    """Whether others than this machine can connect to an address: any that its host stands for is no loopback one."""
    if address.startswith(_UNIX):
        return False
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError:
        return True  # nobody knows; listening will say more
    return not all(ipaddress.ip_address(str(where[0]).partition("%")[0]).is_loopback for *_, where in found)


def _check_together(settings: Settings) -> None:
    """Check settings that need, or exclude, each other."""
    pair = {names.TLS_CERT_FILE: settings.tls_cert_file, names.TLS_KEY_FILE: settings.tls_key_file}
    missing = [name for name, path in pair.items() if path is None]
    if len(missing) == 1:
        (there,) = pair.keys() - set(missing)
        raise AccessError(f"{there} is set, {missing[0]} is not: TLS needs both")
    if missing and settings.tls_client_ca_file is not None:
        raise AccessError(
            f"{names.TLS_CLIENT_CA_FILE} is set, {names.TLS_CERT_FILE} and {names.TLS_KEY_FILE} are not: certificates "
            "are shown over TLS alone"
        )
    if not missing and settings.listen.startswith(_UNIX):
        raise AccessError(
            f"{names.TLS_CERT_FILE} is set, and {names.LISTEN} is a UNIX socket, which never speaks TLS: "
            f"{names.SOCKET_MODE} says who may connect, {names.ACCESS_FILE} who may call"
        )


def _exposed(settings: Settings) -> str:
    """Say what is open to the network and must not be, and what to set; empty: nothing."""
    if not is_beyond_this_machine(settings.listen):
        return ""
    at = f"{names.LISTEN}={settings.listen} is beyond this machine"
    if settings.access_file is None and settings.tls_client_ca_file is None:
        return (
            f"{at}, and anybody there may call; set {names.ACCESS_FILE} or {names.TLS_CLIENT_CA_FILE}, with "
            f"{names.TLS_CERT_FILE} and {names.TLS_KEY_FILE}"
        )
    if settings.tls_cert_file is None:
        return f"{at}, and tokens would travel in the clear; set {names.TLS_CERT_FILE} and {names.TLS_KEY_FILE}"
    return ""
