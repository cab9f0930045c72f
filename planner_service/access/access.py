"""Who may call a planner, as its settings say, kept up with the files that they name."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from planner_service import metrics
from planner_service import settings as names
from planner_service.access.certificates import Certificates, TlsFiles
from planner_service.access.entries import parse_entries
from planner_service.access.exposure import check_exposure
from planner_service.access.tokens import Tokens
from planner_service.access.watched import LOOK_S, Watched

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from planner_service.settings import Settings

_log = logging.getLogger(__name__)


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


class Access:
    """Who may call: the access file's tokens, and the certificates.

    Parameters
    ----------
    settings
        What the planner runs with.
    now
        The clock that certificates are judged by.

    Raises
    ------
    AccessError
        A file cannot be used, or the settings would let in anybody from beyond this machine.
    """

    def __init__(self, settings: Settings, *, now: Callable[[], datetime] = utc_now) -> None:
        check_exposure(settings)
        self._now = now
        self._tokens = _watch_tokens(settings.access_file) if settings.access_file else None
        self._certificates = _watch_certificates(settings)
        self._warned: tuple[Certificates, str] | None = None
        self._warn_of_dates()

    @property
    def tokens(self) -> Tokens | None:
        """Who may call by a token; None: no token is asked for."""
        return None if self._tokens is None else self._tokens.value

    @property
    def certificates(self) -> Certificates | None:
        """What TLS is made with; None: there is none."""
        return None if self._certificates is None else self._certificates.value

    async def follow(self, on_tokens: Callable[[Tokens], None]) -> None:
        """Read the files again whenever they change, until cancelled.

        Parameters
        ----------
        on_tokens
            Called with the tokens that are in force from now on.
        """
        while self._tokens is not None or self._certificates is not None:
            await asyncio.sleep(LOOK_S)
            if self._tokens is not None and await asyncio.to_thread(self._tokens.look):
                on_tokens(self._tokens.value)
            if self._certificates is not None:
                await asyncio.to_thread(self._certificates.look)
                self._warn_of_dates()

    def _warn_of_dates(self) -> None:
        """Log once of each certificate, and of each thing that is wrong with its dates."""
        if self.certificates is None:
            return
        dates = self.certificates.facts
        metrics.certificate_is_valid(dates.begins.timestamp(), dates.ends.timestamp())
        trouble = self.certificates.trouble(self._now())
        if trouble and self._warned != (self.certificates, trouble):
            _log.warning("the certificate in %s %s", names.TLS_CERT_FILE, trouble)
            self._warned = self.certificates, trouble


def _watch_tokens(path: Path) -> Watched[Tokens]:
    source = f"{names.ACCESS_FILE}={path}"
    return Watched({names.ACCESS_FILE: path}, lambda contents: Tokens(parse_entries(contents[0], source)))


def _watch_certificates(settings: Settings) -> Watched[Certificates] | None:
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        return None
    files = TlsFiles(
        certificate=settings.tls_cert_file, key=settings.tls_key_file, client_ca=settings.tls_client_ca_file
    )
    return Watched(files.by_setting(), partial(Certificates.read, files))
