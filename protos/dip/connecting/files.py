"""Which files say whom a client trusts and who it is."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dip.connecting.variables import ALLOW_INSECURE, CA_FILE, CERT_FILE, KEY_FILE, TOKEN_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dip.connecting.endpoint import Endpoint

_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"", "0", "false", "no", "off"})


class ClientFilesError(ValueError):
    """What a client is to connect with cannot be used; one line that names the variable and never holds a secret."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientFiles:
    """The files that a client connects with; an empty name stands for none.

    Parameters
    ----------
    ca_file
        Authorities (PEM) that the planner's certificate must come from, or `variables.SYSTEM`.
    cert_file, key_file
        The client's own certificate chain and its private key (PEM): both or none.
    token_file
        One line: the bearer token.
    allow_insecure
        Whether the token may leave this machine without TLS.

    Raises
    ------
    ClientFilesError
        A certificate without its key, or a key without its certificate.
    """

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    token_file: str = ""
    allow_insecure: bool = False

    def __post_init__(self) -> None:
        if self.cert_file and not self.key_file:
            raise ClientFilesError(f"{CERT_FILE}: {self.cert_file!r}; needs {KEY_FILE}, which is unset")
        if self.key_file and not self.cert_file:
            raise ClientFilesError(f"{KEY_FILE}: {self.key_file!r}; needs {CERT_FILE}, which is unset")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> ClientFiles:
        """Read the variables: those of this process where none are given. An empty variable is an unset one.

        Raises
        ------
        ClientFilesError
            A value is not what is allowed, or one variable needs another.
        """
        environ = os.environ if environ is None else environ
        insecure = environ.get(ALLOW_INSECURE, "")
        if insecure.lower() not in _TRUE | _FALSE:
            raise ClientFilesError(f"{ALLOW_INSECURE}: {insecure!r}; must be true or false")
        return cls(
            ca_file=environ.get(CA_FILE, ""),
            cert_file=environ.get(CERT_FILE, ""),
            key_file=environ.get(KEY_FILE, ""),
            token_file=environ.get(TOKEN_FILE, ""),
            allow_insecure=insecure.lower() in _TRUE,
        )

    @property
    def tls(self) -> bool:
        """Whether connections over the network are made with TLS."""
        return bool(self.ca_file or self.cert_file)

    def check(self, endpoints: Iterable[Endpoint]) -> None:
        """Check that the token reaches none of these planners in the clear.

        Raises
        ------
        ClientFilesError
            One of them is on another machine, and no TLS is set.
        """
        if not self.token_file or self.tls or self.allow_insecure:
            return
        for endpoint in endpoints:
            if not endpoint.local:
                raise ClientFilesError(
                    f"{TOKEN_FILE} is set, and planner {endpoint} would get the token in the clear, where others can "
                    f"read it; set {CA_FILE} for TLS, or {ALLOW_INSECURE}=true where a service mesh encrypts"
                )


def read(variable: str, path: str, *, at_most: int) -> bytes:
    """Read a file.

    Raises
    ------
    ClientFilesError
        It cannot be read, is no regular file, is empty or has more bytes than it may have.
    """
    try:
        # Not to wait for the other end of a pipe.
        regular = stat.S_ISREG(Path(path).stat().st_mode)
        content = _start_of(path, at_most + 1) if regular else b""
    except OSError as error:
        raise ClientFilesError(f"{variable}: {path!r}; cannot be read: {error.strerror}") from error
    except ValueError:  # a zero byte in its name
        raise ClientFilesError(f"{variable}: {path!r}; is no name of a file") from None
    if not regular:
        raise ClientFilesError(f"{variable}: {path!r}; must be a regular file")
    if not content.strip():
        raise ClientFilesError(f"{variable}: {path!r}; is empty")
    if len(content) > at_most:
        raise ClientFilesError(f"{variable}: {path!r}; has more than {at_most} bytes")
    return content


def _start_of(path: str, size: int) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(size)
