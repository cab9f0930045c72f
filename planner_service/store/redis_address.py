"""Where a Redis is, from what DIP_STORE holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from dip.addresses import check_host

from planner_service.store.records import StoreError
from planner_service.store.redis_password import SETTING as PASSWORD_FILE
from planner_service.store.redis_password import PasswordFile

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALLOWED: Final = (
    "allowed are redis://[[user]:password@]host[:port][/database] and, with TLS, rediss://..., "
    "special characters of the password percent-encoded"
)
_LAST_DATABASE: Final = 2**31 - 1  # most servers have 16
_TLS_OPTIONS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


@dataclass(frozen=True, kw_only=True, slots=True)
class RedisAddress:
    """What it takes to reach a Redis.

    Parameters
    ----------
    host, port, database
        Where it is.
    tls
        Whether what goes over the wire is encrypted, and the server's certificate checked.
    credentials
        Arguments of a connection that nobody may see: username and password, where there are any.
    password_file
        Gives connections user and password instead; None: `credentials` hold them.
    tls_options
        Files of certificates, as arguments of a connection.
    """

    host: str
    port: int
    database: int
    tls: bool
    credentials: Mapping[str, str] = field(repr=False)
    tls_options: Mapping[str, str] = field(repr=False)
    password_file: PasswordFile | None = field(default=None, repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss' if self.tls else 'redis'}://{host}:{self.port}/{self.database}"

    def hide(self, text: str) -> str:
        """Return a text without the password, which a server may repeat where it did not understand."""
        if self.password_file is not None:
            return self.password_file.hide(text)
        password = self.credentials.get("password")
        return text.replace(password, "***") if password else text

    @classmethod
    def parse(cls, url: str, *, password_file: Path | None = None) -> RedisAddress:
        """Read an address.

        Parameters
        ----------
        url
            What DIP_STORE holds.
        password_file
            Where the password is, if not there.

        Raises
        ------
        StoreError
            It cannot be read, or there are two passwords; the message does not repeat it, as it may hold one.
        """
        try:
            parts = urlsplit(url)
            port = parts.port or 6379
        except ValueError:
            raise StoreError(
                f"DIP_STORE: its host cannot be read, or its port is no number from 1 to 65535; {_ALLOWED}"
            ) from None
        database = parts.path.removeprefix("/") or "0"
        if parts.scheme not in ("redis", "rediss") or not parts.hostname or parts.fragment:
            raise StoreError(f"DIP_STORE: scheme or host cannot be read; {_ALLOWED}")
        if ":" not in parts.hostname:  # IPv6 otherwise
            try:
                check_host(parts.hostname)
            except ValueError:
                raise StoreError(f"DIP_STORE: there can be no host of its host's name; {_ALLOWED}") from None
        if not (database.isascii() and database.isdigit()) or int(database) > _LAST_DATABASE:
            raise StoreError(f"DIP_STORE: the database is no number from 0 to {_LAST_DATABASE}; {_ALLOWED}")
        tls = parts.scheme == "rediss"
        credentials = _credentials(parts)
        if password_file is not None and "password" in credentials:
            raise StoreError(f"DIP_STORE: holds a password, and {PASSWORD_FILE} is set too; one of them must go")
        return cls(
            host=parts.hostname,
            port=port,
            database=int(database),
            tls=tls,
            credentials=credentials,
            tls_options=_tls_options(parts, tls),
            password_file=None
            if password_file is None
            else PasswordFile(password_file, username=credentials.get("username", "")),
        )

    def check_files(self) -> None:
        """Raise where a file that it names cannot be read.

        Raises
        ------
        StoreError
        """
        if self.password_file is not None:
            self.password_file.check()
        for name, path in self.tls_options.items():
            try:
                Path(path).open("rb").close()
            except OSError as error:
                raise StoreError(f"DIP_STORE: {name} holds {path!r}, which cannot be read: {error.strerror}") from None

    def connection_options(self) -> dict[str, Any]:
        """Return the arguments of a connection."""
        held = self.credentials if self.password_file is None else {"credential_provider": self.password_file}
        return {"host": self.host, "port": self.port, "db": self.database, **held, **self.tls_options}

    @property
    def password_setting(self) -> str:
        """The setting, or settings, that user and password are in."""
        return "DIP_STORE" if self.password_file is None else f"DIP_STORE or {PASSWORD_FILE}"


def _credentials(parts: SplitResult) -> dict[str, str]:
    held = {"username": parts.username, "password": parts.password}
    return {name: unquote(value) for name, value in held.items() if value}


def _tls_options(parts: SplitResult, tls: bool) -> dict[str, str]:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = [name for name in options if not tls or name not in _TLS_OPTIONS]
    if unknown:
        raise StoreError(
            f"DIP_STORE: holds options that are not known; allowed are {', '.join(_TLS_OPTIONS)}, of rediss://"
        )
    return options
