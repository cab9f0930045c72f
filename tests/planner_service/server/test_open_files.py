"""Shows how many files the planner asks for, and how many connections leave enough of them for everything else."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from planner_service.server.open_files import MOST_CONNECTIONS, RESERVED

SCRIPT = """
import resource, sys
from planner_service.server import open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(open_files.raise_limit(), open_files.most_connections(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def limits(soft: int, hard: int) -> list[int]:
    """What a process of its own makes of its limits: files, connections, and the limits that it has then."""
    command = [sys.executable, "-c", SCRIPT, str(soft), str(hard)]
    return [int(word) for word in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()]


@pytest.mark.parametrize(("soft", "hard"), [(256, 4096), (4096, 4096)])
def test_as_many_files_as_it_may_ask_for(soft: int, hard: int) -> None:
    assert limits(soft, hard) == [hard, hard - RESERVED, hard, hard]


def test_few_files_are_shared_with_everything_else() -> None:
    assert limits(256, 1024)[:2] == [1024, 512]


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < MOST_CONNECTIONS + RESERVED, reason="may not have as many open"
)
def test_no_more_than_it_needs() -> None:
    assert limits(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1])[:2] == [
        MOST_CONNECTIONS + RESERVED,
        MOST_CONNECTIONS,
    ]
