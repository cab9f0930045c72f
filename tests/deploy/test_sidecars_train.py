"""The sidecar overlay's training runs as its files say: two pods, a planner in each, and a Redis for these alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis
from deploy.rendering import KUBERNETES, find, needs_kubectl, overlay
from deploy.site import Site
from deploy.workloads import FIELD, Container, planners, trainers
from needed import needs_openssl
from redis_cases import needs_redis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.redis_server import RedisServer

pytestmark = [needs_kubectl, needs_openssl, needs_redis]

ITERATIONS = 3
PATIENCE_S = 240
SMALL = ("--iterations", str(ITERATIONS), "--repeats", "1", "--microbatches", "2")
# On a busy machine plans are late, which is no matter of this test: they are waited for, and planned by whoever began.
PATIENT = {"DIP_SCHEDULE_WAIT_MS": str(PATIENCE_S * 1000), "DIP_STEP_TIMEOUT_S": str(2 * PATIENCE_S)}
PATIENT_PLANNER = {"DIP_SOLVE_GRACE_MS": "600000", "DIP_LEASE_MS": "600000"}


def test_two_pods_with_a_planner_each_train_together(tmp_path: Path) -> None:
    objects = overlay("sidecar")
    (planner,), (trainer,) = planners(objects), trainers(objects)
    pods = find(objects, "Job", "dip-trainer")["spec"]["parallelism"]
    sites = [Site(directory(tmp_path / str(pod)), lambda path: f"redis/{Path(path).name}") for pod in range(pods)]
    for other in sites[1:]:  # one Secret for all
        shutil.rmtree(other.secrets)
        shutil.copytree(sites[0].secrets, other.secrets)
    with ExitStack() as stack:
        server = stack.enter_context(sites[0].redis((KUBERNETES / "base/redis/valkey.conf").read_text()))
        for site in sites:
            site.use_redis(server)
            stack.enter_context(site.planner(site.settings(planner.settings) | PATIENT_PLANNER))
        # The pods' names lead to one machine here, so that their ranks meet at its address.
        meeting = {"PET_RDZV_ENDPOINT": f"127.0.0.1:{sites[0].free_port('rendezvous')}"}
        started = [
            stack.enter_context(start(trainer, site, tmp_path / str(pod), meeting)) for pod, site in enumerate(sites)
        ]
        said = [process.communicate(timeout=PATIENCE_S)[0] for process in started]
        assert [process.returncode for process in started] == [0] * pods, "\n".join(said)
        check_rights(server, sites[0])
    assert f"of {ITERATIONS} iterations ran a plan made for their batch" in "".join(said)
    # Whichever planner was free: every batch was planned, by one of them.
    planned = [iteration for pod in range(pods) for iteration in planned_by(tmp_path / str(pod))]
    assert sorted(planned) == list(range(ITERATIONS))


def directory(path: Path) -> Path:
    path.mkdir()
    return path


def check_rights(server: RedisServer, site: Site) -> None:
    """The Redis is for planners alone, and lets them do no more than they need."""
    with server.client() as anybody:
        assert anybody.ping()
        is_refused(anybody, "KEYS *", "SMEMBERS dip:1:jobs", "CONFIG GET *", "SHUTDOWN", "ACL LIST")
    password = (site.secrets / "redis" / "password").read_text()
    with redis.Redis(port=server.port, username="planner", password=password) as planner:
        assert planner.smembers("dip:1:jobs") == {b"dip-trainer"}
        is_refused(planner, "GET other", "CONFIG GET *", "FLUSHALL", "KEYS *", "ACL LIST")


def is_refused(client: redis.Redis, *commands: str) -> None:
    for command in commands:
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command(*command.split())


@contextmanager
def start(trainer: Container, site: Site, own: Path, meeting: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run a pod's trainer, as its command and variables say, to the end of the block at most."""
    told = {name: value for name, value in trainer.environment.items() if value != FIELD}
    told["DIP_PLANNER_ENDPOINT"] = site.endpoint(told["DIP_PLANNER_ENDPOINT"])
    told["DIP_JOB_ID"] = trainer.pod.owner.rpartition("/")[2]
    program, *arguments = trainer.raw["command"]
    here = [str(own / Path(each).name) if each.startswith("/tmp/") else each for each in arguments]
    outside = {name: value for name, value in os.environ.items() if not re.match("DIP_|PET_", name)}
    with subprocess.Popen(
        [str(Path(sys.executable).parent / program), *here, *SMALL],
        env=outside | told | meeting | PATIENT | {"PYTHONPATH": ".", "TMPDIR": str(own)},
        cwd=KUBERNETES.parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()  # torchrun ends its ranks then


def planned_by(own: Path) -> Iterator[int]:
    """Read from a planner's log which iterations it planned."""
    for line in (own / "planner.log").read_text().splitlines():
        entry = json.loads(line)
        if entry["message"] == "planned":
            yield entry["iteration"]
