"""Bearer tokens: who presents one, and whether what it once allowed is still allowed."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from planner_service.access.caller import Caller
from planner_service.access.permissions import roles_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner_service.access.entries import TokenEntry

TOKEN_BYTES: Final = 32
"""Of randomness, in a token that `dip token` makes."""


class Tokens:
    """The tokens of an access file, by their digests; the tokens themselves are not known here."""

    def __init__(self, entries: Iterable[TokenEntry]) -> None:
        self._entries = {digest: entry for entry in entries for digest in entry.digests}

    def caller(self, token: str) -> Caller | None:
        """Tell who presents a token; None where nobody may.

        Every digest is compared, each in constant time: how long it takes tells nothing of any of them.
        """
        presented = token_digest(token)
        found = None
        for digest, entry in self._entries.items():
            if hmac.compare_digest(digest, presented):
                found = entry
        if found is None:
            return None
        return Caller(name=f"token:{found.name}", roles=found.roles, jobs=found.jobs, token_digest=presented)

    def still_allow(self, caller: Caller, method: str, job_id: str) -> bool:
        """Whether who called with a token before may go on; callers without one are none of the access file's."""
        if not caller.token_digest:
            return True
        entry = self._entries.get(caller.token_digest)
        if entry is None:
            return False
        now = Caller(name=caller.name, roles=entry.roles, jobs=entry.jobs)
        return not now.roles.isdisjoint(roles_for(method)) and now.may_touch(job_id)


def token_digest(token: str) -> bytes:
    """SHA-256 of a token, as entries hold it."""
    return hashlib.sha256(token.encode()).digest()
