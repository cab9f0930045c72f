"""How many cores this process may use, and how many of them solvers take."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
CGROUP_OF_PROCESS = Path("/proc/self/cgroup")


def usable_cores(*, root: Path = CGROUP_ROOT, membership: Path = CGROUP_OF_PROCESS) -> float:
    """Cores that this process may use: the smaller of its affinity and its control groups' quota.

    Parameters
    ----------
    root, membership
        Where control groups are mounted, and the file that says which ones this process is in.

    Returns
    -------
    float
        Above 0; a quota may be a fraction.
    """
    return min(float(len(os.sched_getaffinity(0))), _quota(root, membership))


def default_workers(cores: float) -> int:
    """Half of the cores, at least one: the training process beside the planner needs the rest."""
    return max(1, int(cores / 2))


def _quota(root: Path, membership: Path) -> float:
    """Lowest quota of the process's groups and their ancestors, in cores; infinite where there is none."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return math.inf
    lowest = math.inf
    for line in lines:
        _, controllers, path = line.split(":", 2)
        # Version 2 has one hierarchy, listed without controllers. Version 1 mounts each under its name.
        if controllers == "":
            mounts, read = [root, root / "unified"], _quota_v2
        elif "cpu" in controllers.split(","):
            mounts, read = [root / controllers, root / "cpu"], _quota_v1
        else:
            continue
        for mount in mounts:
            group = mount / path.lstrip("/")
            for level in (group, *group.parents):
                if level.is_relative_to(mount):
                    lowest = min(lowest, read(level))
    return lowest


def _quota_v2(group: Path) -> float:
    quota, period = ([*_words(group / "cpu.max"), "max", "100000"])[:2]
    return math.inf if quota == "max" else int(quota) / int(period)


def _quota_v1(group: Path) -> float:
    quota = ([*_words(group / "cpu.cfs_quota_us"), "-1"])[0]
    period = ([*_words(group / "cpu.cfs_period_us"), "100000"])[0]
    return math.inf if int(quota) <= 0 else int(quota) / int(period)


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
