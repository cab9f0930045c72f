"""What a script of ranks checks before it trains: how it was started, what is installed, how many cores there are."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import sys
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from trainer_agent import Mesh

if TYPE_CHECKING:
    from collections.abc import Callable

NEEDED = {"sklearn": "scikit-learn", "tqdm": "tqdm"}


def require_packages(packages: dict[str, str] = NEEDED) -> None:
    """Exit with what to install where a package that the example needs is missing."""
    missing = [name for module, name in packages.items() if importlib.util.find_spec(module) is None]
    if missing:
        sys.exit(f"{', '.join(missing)} missing: install the extra of the examples, pip install 'dip-planner[demo]'")


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of a command line's argument that is a whole number from ``least`` on."""

    def whole(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text!r}; must be a whole number, {least} or more")
        return number

    return whole


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def join_ranks(script: str) -> Mesh:
    """Join the processes that torchrun started, one thread each.

    Parameters
    ----------
    script
        As torchrun's command line names it, for who started it otherwise.
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        sys.exit(f"start this with torchrun: torchrun --standalone --nproc-per-node 2 {script}")
    require_packages()
    logging.basicConfig(level=logging.WARNING, format=f"rank {os.environ['RANK']}: %(message)s")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    cores = usable_cores()
    pin(cores)
    dist.init_process_group("gloo")
    mesh = Mesh.create()
    if dist.get_rank() == 0 and cores < dist.get_world_size():
        print(
            f"warning: {dist.get_world_size()} ranks share {cores} core{'s'[: cores > 1]}: they take turns instead of "
            "working side by side, so training is right but no schedule can make it faster",
            flush=True,
        )
    return mesh


def pin(cores: int) -> None:
    """Give each rank of this machine a core of its own: else one that wakes another up may have to share with it."""
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ["WORLD_SIZE"])
    if cores >= ranks_here:
        own = sorted(os.sched_getaffinity(0))[int(os.environ.get("LOCAL_RANK") or os.environ["RANK"])]
        os.sched_setaffinity(0, {own})
