"""How many files the process may have open: what bounds the connections that it can take."""

from __future__ import annotations

import resource
from typing import Final

MOST_CONNECTIONS: Final = 2**16
"""Taken at once, whatever the system would allow."""

RESERVED: Final = 1024
"""Files that stay for everything else (the store, solver processes, health, metrics), or half where there are few."""


def raise_limit() -> int:
    """Let this process have as many files open as it may ask for, and needs; return how many that are.

    Shells and service managers often hand down a limit of 1,024, for old programs, and a higher one for those who ask.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + RESERVED
    asked = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < asked:
        resource.setrlimit(resource.RLIMIT_NOFILE, (asked, hard))
    return most_open()


def most_open() -> int:
    """How many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + RESERVED
    return wanted if soft == resource.RLIM_INFINITY else min(soft, wanted)


def most_connections() -> int:
    """How many connections of clients leave enough files for everything else."""
    return max(most_open() // 2, most_open() - RESERVED)
