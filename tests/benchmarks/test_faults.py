"""Shows that the checks of the fault run find what they look for, and that its network and clock do what they say."""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from redis_cases import needs_redis, redis_store
from waiting import PATIENCE_S

from benchmarks.faults import checkpoints, checks, outcomes
from benchmarks.faults.messages import Accepted, Executed
from benchmarks.faults.model import Batch
from benchmarks.faults.network import PERFECT, Network, Quality
from benchmarks.faults.reference import Reference
from benchmarks.redis_server import RedisServer
from planner_service.store import BatchKey, JobRecord, Outcome, ReplicaKey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLACES = [(replica, rank) for replica in range(2) for rank in range(2)]
FIRST, LAST = 4, 7


def executed(replica: int, rank: int, iteration: int, **changes: Any) -> Executed:
    said = {
        "attempt": 1,
        "replica": replica,
        "rank": rank,
        "iteration": iteration,
        "digest": b"%d %d" % (replica, iteration),
        "fallback": False,
        "reason": "",
        "waited_us": 0,
        "loss": 1.0,
        "at_s": 0.0,
    }
    return Executed(**said | changes)


def good_run() -> list[Executed]:
    return [executed(*place, iteration) for place in PLACES for iteration in range(FIRST, LAST)]


def found(run: list[Executed], *, killed: bool = False) -> list[str]:
    return checks.executions(run, places=PLACES, first_iteration=FIRST, killed=killed)


def test_a_run_where_every_rank_ran_every_iteration_once_with_one_digest() -> None:
    assert found(good_run()) == []
    one_ahead = [*good_run(), executed(0, 0, LAST)]  # the others were killed in the middle of that iteration
    assert found(one_ahead, killed=True) == []
    assert found(one_ahead) == ["some ranks ran 3 iterations, others 4"]


def test_executions_that_must_not_be() -> None:
    run = good_run()
    assert found([*run, executed(0, 0, LAST), executed(0, 0, LAST + 1)]) == ["some ranks ran 3 iterations, others 5"]
    assert found([*run, executed(0, 1, LAST - 1)], killed=True) == ["replica 0, rank 1 ran iteration 6 in place of 7"]
    assert "replica 0, rank 0 ran iteration 5 in place of 4" in found(run[1:])
    assert "replica 1, rank 1 ran iteration 8 in place of 7" in found([*run, executed(1, 1, LAST + 1)])
    other_digest = [*run[:-1], executed(1, 1, LAST - 1, digest=b"other")]
    assert found(other_digest) == ["replica 1 ran iteration 6 with 2 digests"]
    other_attempt = [*run[:-1], executed(1, 1, LAST - 1, attempt=2)]
    assert found(other_attempt) == ["ranks disagree on the attempt: [1, 2]"]


def starts() -> list[Any]:
    """A start, and one that resumed at its second checkpoint, with the losses of ordinary training."""
    reference, made = Reference(), []
    saved: dict[str, torch.Tensor] = {}
    for number, iterations in enumerate(
        (range(checkpoints.EVERY + 2), range(checkpoints.EVERY, checkpoints.EVERY + 2))
    ):
        if number:
            reference.load(saved)
        said = []
        for iteration in iterations:
            if iteration == checkpoints.EVERY:
                saved = saved or reference.parameters()
            batches = [Batch.draw(seed=number, replica=replica, iteration=iteration) for replica in range(2)]
            said.append(executed(0, 0, iteration, loss=reference.step(batches)))
        resumed = 0 if number else None
        made.append(SimpleNamespace(number=number, resumed=resumed, first_iteration=iterations.start, executed=said))
    return made


def test_losses_are_compared_with_ordinary_training_that_resumes_alike() -> None:
    made = starts()
    assert checks.losses(made, replicas=2) == []
    right = made[1].executed[1]
    made[1].executed[1] = executed(0, 0, right.iteration, loss=right.loss * (1 + 1e-6))
    (violation,) = checks.losses(made, replicas=2)
    assert violation.startswith(f"start 1, iteration {right.iteration}: loss ")


def test_errors_in_logs() -> None:
    good = "2026-01-01 10:00:00,000 INFO a: b\n2026-01-01 10:00:00,000 WARNING a: ERROR is only a word here\n"
    bad = good + "2026-01-01 10:00:00,000 ERROR asyncio: lost\n" + "Traceback (most recent call last):\n  File x\n"
    killed = (
        "2026-01-01 10:00:00,000 ERROR a: worker does not start, attempt 1: the solver's process ended with signal 9"
    )
    assert checks.logs({"planner": good + killed}) == []
    assert [line.split(": ")[0] for line in checks.logs({"planner": good, "rank": bad})] == ["rank", "rank"]
    assert checks.counted(["a", "b", "a"]) == ["a (2 times)", "b"]
    assert checks.counted([str(i) for i in range(30)])[-1] == "and 10 more"


@needs_redis
def test_accepted_batches_without_an_outcome_are_lost() -> None:
    async def fill(server: RedisServer) -> None:
        async with redis_store(server) as store:
            await store.put_job(JobRecord(job_id="job", attempt=1, spec=b"", partition=b""))
            for iteration in (0, 1):
                replica = ReplicaKey(job_id="job", attempt=1, replica=0)
                key = BatchKey(replica=replica, iteration=iteration)
                await store.add_batch(key, digest=bytes(32), batch=b"batch", limit=9)
                if iteration == 0:
                    await store.settle(key, bytes(32), Outcome(unplanned_reason="it cannot fit"))

    with RedisServer() as redis:
        asyncio.run(fill(redis))
        accepted = [Accepted(attempt=1, replica=0, iteration=iteration, at_s=0.0) for iteration in range(3)]
        assert outcomes.lost(redis.url, "job", accepted[:1], patience_s=0.1) == []
        assert sorted(outcomes.lost(redis.url, "job", accepted, patience_s=0.1)) == [
            "attempt 1, replica 0, iteration 1 was accepted: it has no outcome",
            "attempt 1, replica 0, iteration 2 was accepted: the store does not know it",
        ]
        (over,) = outcomes.lost(
            redis.url, "job", [Accepted(attempt=2, replica=0, iteration=0, at_s=0.0)], patience_s=0.1
        )
        assert over.endswith("attempt 2 of job 'job' is over")


@contextmanager
def echo_server() -> Iterator[int]:
    """Serve one connection with what it sends; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                while data := connection.recv(2**16):
                    connection.sendall(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_a_network_delays_and_narrows_and_holds_back_what_it_is_sent_while_it_is_cut() -> None:
    with (
        echo_server() as port,
        Network(port) as network,
        socket.create_connection(("127.0.0.1", network.port), timeout=PATIENCE_S) as client,
    ):

        def there_and_back(data: bytes) -> float:
            began_s = time.monotonic()
            client.sendall(data)
            assert client.recv(len(data), socket.MSG_WAITALL) == data
            return time.monotonic() - began_s

        there_and_back(b"at once")
        assert network.bytes_from_clients == len(b"at once")
        network.quality = Quality(delay_s=0.05)
        assert there_and_back(b"late") >= 0.1
        network.quality = Quality(bytes_per_s=10_000)
        assert there_and_back(bytes(1_000)) >= 0.2
        network.quality = PERFECT
        network.cut()
        client.settimeout(0.2)
        client.sendall(b"held back")
        with pytest.raises(TimeoutError):
            client.recv(1)
        network.mend()
        client.settimeout(PATIENCE_S)
        assert client.recv(9, socket.MSG_WAITALL) == b"held back"


def test_a_clock_that_jumps_takes_nothing_but_the_time_of_day_along() -> None:
    program = """
import os, signal, time
from benchmarks.faults.jumping_clock import JumpingClock
JumpingClock().install()
day, steady = time.time(), time.monotonic()
os.kill(os.getpid(), signal.SIGUSR1)
print(round((time.time() - day) / 3600), round((time.monotonic() - steady) / 3600))
os.kill(os.getpid(), signal.SIGUSR2)
os.kill(os.getpid(), signal.SIGUSR2)
print(round((time.time_ns() / 1e9 - day) / 3600))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "0", "-1"]


def test_only_checkpoints_of_all_ranks_are_complete(tmp_path: Path) -> None:
    named = {"a": torch.nn.Parameter(torch.tensor([float(random.randrange(9))]))}
    for rank, iteration in ((0, 0), (1, 0), (0, checkpoints.EVERY), (0, 1), (1, 1)):
        checkpoints.save(tmp_path, iteration, rank, named)
    assert checkpoints.complete(tmp_path, ranks=2) == [0]
    loaded = {"a": torch.nn.Parameter(torch.zeros(1))}
    checkpoints.load(tmp_path, 0, loaded)
    assert torch.equal(loaded["a"], named["a"])
