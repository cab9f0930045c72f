"""What the agent's log records are about, as attributes: for formatters of the training program that write fields.

A training program decides how its log is written. Whatever it decides, each record of this package has the attributes
``dip_job``, ``dip_attempt``, ``dip_replica`` and ``dip_rank`` once its process is a part of a job, and those about an
iteration ``dip_iteration``; the messages say what matters without them.
"""

from __future__ import annotations

import logging


class _About(logging.Filter):
    """Gives records the attributes of this process's place; lets every record pass."""

    def __init__(self) -> None:
        super().__init__()
        self.place: dict[str, str | int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in self.place.items():
            setattr(record, name, value)
        return True


_about = _About()


def logger(name: str) -> logging.Logger:
    """Return the logger of a module, whose records say what they are about."""
    made = logging.getLogger(name)
    made.addFilter(_about)
    return made


def is_at(*, job: str, attempt: int, replica: int, rank: int) -> None:
    """Say which process of which job this one is, with the records to come; the last one said stands."""
    _about.place = {"dip_job": job, "dip_attempt": attempt, "dip_replica": replica, "dip_rank": rank}


def iteration(number: int) -> dict[str, object]:
    """Return attributes of a record about an iteration, for its ``extra``."""
    return {"dip_iteration": number}
