"""What a client shows a planner and trusts of it, as its files held it at one time."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc

from dip.connecting.files import ClientFilesError
from dip.connecting.tls import Tls
from dip.connecting.token import bearer, read_token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.connecting.endpoint import Endpoint
    from dip.connecting.files import ClientFiles

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """Contents of a client's files. Two are equal where a planner could not tell them apart.

    Parameters
    ----------
    tls
        What TLS is made with; None: there is none.
    token
        The bearer token; empty: there is none.
    """

    tls: Tls | None = None
    token: str = field(default="", repr=False)

    def channel(self, endpoint: Endpoint, options: Sequence[tuple[str, int]] = ()) -> grpc.Channel:
        """Make a channel to a planner, which connects with its first call.

        UNIX sockets are never spoken TLS on: the permissions of the file system guard them, and no certificate can
        name them. HTTP proxies of the environment are not asked about what is on this machine.

        Parameters
        ----------
        endpoint
            Where the planner listens.
        options
            gRPC's settings for the channel.
        """
        direct = [("grpc.enable_http_proxy", 0)] if endpoint.local else []
        if self.tls is None or endpoint.unix:
            return grpc.insecure_channel(endpoint.target, options=[*options, *direct])
        return grpc.secure_channel(endpoint.target, self.tls.credentials(), options=[*options, *direct])

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return what every call carries. Whether it may reach an endpoint says `ClientFiles.check`."""
        return bearer(self.token) if self.token else ()


class CredentialSource:
    """The credentials of one client, read again whenever they are asked for. Safe between threads and after a fork.

    Files that cannot be used at the start are an error there: whoever set them sees it. Later they are none: they may
    be in the middle of being replaced, or gone for a while; the last that were good are used on, and it is said once.

    Parameters
    ----------
    files
        Where they are.

    Raises
    ------
    ClientFilesError
        One of the files cannot be used.
    """

    def __init__(self, files: ClientFiles) -> None:
        self._files = files
        # Both are replaced, never changed, and by no lock: one that a fork finds taken would never be free again.
        self._good = self._read(None)
        self._complaint = ""

    def current(self) -> Credentials:
        """Return what the files hold now, or held when they were last good."""
        try:
            found = self._read(self._good)
        except ClientFilesError as error:
            if self._complaint != str(error):
                _log.warning("%s; what was last read from it is used on", error)
            self._complaint = str(error)
        else:
            self._good, self._complaint = found, ""
        return self._good

    def _read(self, good: Credentials | None) -> Credentials:
        files = self._files
        token = read_token(files.token_file) if files.token_file else ""
        if not files.tls:
            return Credentials(token=token)
        tls = Tls.read(files)
        if good is None or tls != good.tls:
            tls.check(files)
        return Credentials(tls=tls, token=token)
