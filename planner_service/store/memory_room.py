"""How much the default store may hold, and how much of it one client's jobs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from planner_service.store.records import StoreFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from planner_service.store.records import JobRecord

MOST_BYTES: Final = 4 * 2**30
"""What the store may hold where nobody says otherwise."""

CLIENT_PART: Final = 2
"""The jobs that one client opened may take one part in so many of what there is for all."""

BATCH_BYTES: Final = 2_048
"""What a batch takes beside its bytes, at most: entries of dictionaries."""

_SPEC_COPIES: Final = 4
"""A job's spec stands in the store, parsed, and as the beginning of every request to a solver."""


def job_bytes(record: JobRecord) -> int:
    """What a job takes before anything is submitted."""
    return _SPEC_COPIES * (len(record.spec) + len(record.partition))


class MemoryRoom:
    """The room that there is.

    Parameters
    ----------
    most_bytes
        For all jobs together.
    taken
        Tells whose jobs take how many bytes, each job once.
    """

    def __init__(self, most_bytes: int, taken: Callable[[], Iterable[tuple[str, int]]]) -> None:
        self._most_bytes = most_bytes
        self._taken = taken
        self._spare = 0  # what may be added, whoever's it is, before it has to be counted again

    def check(self, owner: str, more: int) -> None:
        """Refuse what would be too much; whatever grows is checked first.

        Parameters
        ----------
        owner, more
            Whose job would take how many bytes more.

        Raises
        ------
        StoreFullError
        """
        if more <= self._spare:
            self._spare -= max(0, more)
            return
        of_owners: Counter[str] = Counter()
        for name, num_bytes in self._taken():
            of_owners[name] += num_bytes
        most_of_owner, of_all = self._most_bytes // CLIENT_PART, of_owners.total()
        if of_owners[owner] + more > most_of_owner:
            taken = f"{of_owners[owner]} bytes of at most {most_of_owner}"
            raise StoreFullError(f"jobs of {owner or 'one client'} take {taken} (half of DIP_MAX_STORE_BYTES)")
        if of_all + more > self._most_bytes:
            raise StoreFullError(f"all jobs take {of_all} bytes, DIP_MAX_STORE_BYTES allows {self._most_bytes}")
        of_owners[owner] += more
        self._spare = min(self._most_bytes - of_all - more, most_of_owner - max(of_owners.values()))
