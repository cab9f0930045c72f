"""The faults: each begins, lasts for a while, and ends, all of it drawn from the source of chance that it is given."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from benchmarks.faults.network import PERFECT, Quality

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from benchmarks.faults.site import Site

    Strike: TypeAlias = Callable[[Site, random.Random], None]

_One = TypeVar("_One")


def planner_killed(site: Site, draw: random.Random) -> None:
    """SIGKILL of one planner, which is started again after a while."""
    planner = draw.choice(site.planners)
    planner.kill()
    site.last(draw, 0.0, 4.0)
    planner.start()


def planners_killed(site: Site, draw: random.Random) -> None:
    """SIGKILL of all planners, which are started again one after the other."""
    for planner in site.planners:
        planner.kill()
    site.last(draw, 0.0, 3.0)
    for planner in draw.sample(site.planners, len(site.planners)):
        planner.start()


def planner_stopped(site: Site, draw: random.Random) -> None:
    """SIGSTOP of one planner, longer or shorter than its lease; then it goes on with what it held."""
    planner = draw.choice(site.planners)
    planner.send(signal.SIGSTOP)
    site.last(draw, 0.5, 8.0)
    planner.send(signal.SIGCONT)


def redis_killed(site: Site, draw: random.Random) -> None:
    """Redis is killed and started again with its data."""
    site.redis.kill()
    site.last(draw, 0.0, 4.0)
    site.redis.start()


def redis_emptied(site: Site, draw: random.Random) -> None:
    """Redis is killed and started again without its data."""
    site.redis.kill()
    site.last(draw, 0.0, 4.0)
    site.empty_redis()


def redis_full(site: Site, draw: random.Random) -> None:
    """Redis has no room for anything new."""
    client = site.redis.client()
    client.config_set("maxmemory", 1)
    site.last(draw, 1.0, 5.0)
    client.config_set("maxmemory", 0)
    client.close()


def network_slow(site: Site, draw: random.Random) -> None:
    """Redis is far from some planners, and the way narrow."""
    networks = _some(site.networks, draw)
    for network in networks:
        network.quality = Quality(delay_s=draw.uniform(0.05, 0.2), bytes_per_s=draw.choice([0, 2**18, 2**20]))
    site.last(draw, 2.0, 6.0)
    for network in networks:
        network.quality = PERFECT


def network_cut(site: Site, draw: random.Random) -> None:
    """Nothing passes between Redis and some planners, nor is anything closed."""
    networks = _some(site.networks, draw)
    for network in networks:
        network.cut()
    site.last(draw, 0.5, 6.0)
    for network in networks:
        network.mend()


def clock_jumped(site: Site, draw: random.Random) -> None:
    """The wall clock of one planner jumps by an hour."""
    draw.choice(site.planners).send(draw.choice([signal.SIGUSR1, signal.SIGUSR2]))


def solvers_killed(site: Site, draw: random.Random) -> None:
    """SIGKILL of the solver processes of some planners."""
    for planner in _some(site.planners, draw):
        for pid in planner.solver_pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def agents_killed(site: Site, draw: random.Random) -> None:
    """SIGKILL of all ranks; the job is started again at an older iteration, with other data."""
    site.training.kill()
    site.look_for_lost_batches()  # a new attempt drops them
    site.last(draw, 0.0, 1.0)
    site.training.resume(draw)


STRIKES: Final[dict[str, Strike]] = {
    strike.__name__: strike
    for strike in (
        planner_killed,
        planners_killed,
        planner_stopped,
        redis_killed,
        redis_emptied,
        redis_full,
        network_slow,
        network_cut,
        clock_jumped,
        solvers_killed,
        agents_killed,
    )
}
"""By name."""


def _some(those: Sequence[_One], draw: random.Random) -> list[_One]:
    """Draw one of them, or all."""
    return draw.sample(those, draw.randint(1, len(those)))
