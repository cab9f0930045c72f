"""Shows that solvers take half of what affinity and control groups allow, whichever is less, and at least one core."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from planner_service.pool import default_workers, usable_cores

if TYPE_CHECKING:
    from pathlib import Path

AFFINITY = len(os.sched_getaffinity(0))


def cores(tmp_path: Path, membership: str, files: dict[str, str]) -> float:
    for name, content in files.items():
        file = tmp_path / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    (tmp_path / "membership").write_text(membership)
    return usable_cores(root=tmp_path / "cgroup", membership=tmp_path / "membership")


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 0.5),
        ("0::/pod/box\n", {"pod/cpu.max": "25000 100000\n", "pod/box/cpu.max": "max 100000\n"}, 0.25),
        (
            "3:cpu,cpuacct:/box\n",
            {"cpu/box/cpu.cfs_quota_us": "75000\n", "cpu/box/cpu.cfs_period_us": "100000\n"},
            0.75,
        ),
        ("3:cpu:/gone\n", {"cpu/cpu.cfs_quota_us": "40000\n"}, 0.4),
    ],
    ids=["version 2", "an ancestor's", "version 1", "version 1 seen from inside a container"],
)
def test_lowest_quota_counts(tmp_path: Path, membership: str, files: dict[str, str], quota: float) -> None:
    assert cores(tmp_path, membership, files) == quota


@pytest.mark.parametrize(
    ("membership", "files"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n"}),
        ("3:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n"}),
        ("4:memory:/\n", {}),
        ("", {}),
    ],
)
def test_affinity_counts_where_there_is_no_quota(tmp_path: Path, membership: str, files: dict[str, str]) -> None:
    assert cores(tmp_path, membership, files) == AFFINITY


def test_large_quota_does_not_make_cores(tmp_path: Path) -> None:
    assert cores(tmp_path, "0::/\n", {"cpu.max": "99900000 100000\n"}) == AFFINITY


def test_no_control_groups_at_all(tmp_path: Path) -> None:
    assert usable_cores(root=tmp_path, membership=tmp_path / "missing") == AFFINITY


@pytest.mark.parametrize(("cores", "workers"), [(0.5, 1), (1, 1), (2, 1), (3.9, 1), (4, 2), (16, 8)])
def test_half_of_the_cores_and_at_least_one(cores: float, workers: int) -> None:
    assert default_workers(cores) == workers
