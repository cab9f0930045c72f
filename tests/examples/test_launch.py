"""Shows that each rank of a machine gets a core of its own, where there are enough."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PIN = "import os; from examples.vlm.launch import pin; pin({cores}); print(sorted(os.sched_getaffinity(0)))"


def cores_of(local_rank: int, *, ranks: int, cores: int) -> list[int]:
    """Cores that a rank may use after it was pinned, in a process of its own."""
    environment = os.environ | {"LOCAL_RANK": str(local_rank), "LOCAL_WORLD_SIZE": str(ranks)}
    code = PIN.format(cores=cores)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return [int(core) for core in done.stdout.strip("[]\n").split(",")]


def test_ranks_get_cores_of_their_own() -> None:
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        pytest.skip("one core cannot be shared out")
    assert [cores_of(rank, ranks=2, cores=len(usable)) for rank in (0, 1)] == [[usable[0]], [usable[1]]]


def test_ranks_that_outnumber_the_cores_share_them_all() -> None:
    usable = sorted(os.sched_getaffinity(0))
    assert cores_of(0, ranks=len(usable) + 1, cores=len(usable)) == usable
