"""Each overlay's planner starts with the very settings of its files, is healthy, and answers its trainers alone."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import cases
import grpc
import pytest
import redis
from deploy.rendering import KUBERNETES, OVERLAYS, needs_kubectl, overlay
from deploy.running import SERVICE
from deploy.site import PATIENCE_S, Site, is_serving
from deploy.workloads import FIELD, Container, planners, trainers
from dip.connecting import ClientFiles, Endpoint, call_metadata, open_channel
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from redis_cases import needs_redis

if TYPE_CHECKING:
    from benchmarks.redis_server import RedisServer

pytestmark = [needs_kubectl, needs_redis]

CONFIGURATION = (KUBERNETES / "base/redis/valkey.conf").read_text()
TRAINER_OF_SHARED = {
    "DIP_PLANNER_ENDPOINT": "dip-planner:50061",
    "DIP_TLS_CA_FILE": "/etc/dip/ca/ca.crt",
    "DIP_TOKEN_FILE": "/etc/dip/token/token",
}
"""What the guide tells users of shared planners to set."""
SECRETS_OF_SHARED = {"/etc/dip/ca/ca.crt": "dip-planner-tls", "/etc/dip/token/token": "dip-trainer-token"}


DIRECTORIES = {
    "dip-planner-tls": "tls",
    "dip-planner-access": "access",
    "dip-trainer-token": "trainer",
    "dip-redis": "redis",
}
"""Where `make_secrets.sh` puts what becomes of each Secret."""


def site_of(directory: Path, found: list[Container]) -> Site:
    """Make the site of some containers, whose Secrets bring its files."""

    def made_as(path: str) -> str:
        secrets = {volume["secret"]["secretName"] for each in found if (volume := each.mounted(path))}
        (secret,) = secrets or {SECRETS_OF_SHARED[path]}
        return f"{DIRECTORIES[secret]}/{Path(path).name}"

    return Site(directory, made_as)


def register(site: Site, variables: dict[str, str]) -> pb.RegisterJobResponse:
    """Register a small job as an agent with these variables would."""
    here = site.settings(variables)
    files = ClientFiles.from_environment(here)
    endpoint = Endpoint.parse(site.endpoint(variables["DIP_PLANNER_ENDPOINT"]))
    request = pb.RegisterJobRequest(
        job_id=job_of(here), attempt=1, spec=cases.job([cases.module("language", 4)], ranks=2)
    )
    with open_channel(endpoint, files) as channel:
        return pb_grpc.PlannerServiceStub(channel).RegisterJob(
            request, timeout=PATIENCE_S, metadata=call_metadata(files)
        )


def job_of(variables: dict[str, str]) -> str:
    named = variables.get("DIP_JOB_ID", FIELD)
    return "train-vlm" if named == FIELD else named


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_planner_starts_as_configured(name: str, tmp_path: Path) -> None:
    objects = overlay(name)
    (planner,) = planners(objects)
    agents = [each.settings for each in trainers(objects)] or [TRAINER_OF_SHARED]
    site = site_of(tmp_path, [planner, *trainers(objects)])
    with site.redis(CONFIGURATION) as server:
        site.use_redis(server)
        settings = site.settings(planner.settings)
        with site.planner(settings):
            assert is_serving(settings["DIP_HEALTH_LISTEN"], SERVICE)
            assert is_serving(settings["DIP_HEALTH_LISTEN"], "")
            for variables in agents:
                assert register(site, variables).partition.chunks
            assert b"dip_queue_batches" in scraped(settings["DIP_METRICS_LISTEN"])
            check_strangers(site, agents[0])
            check_redis(server, site, uses_it="redis://" in settings["DIP_STORE"])


def scraped(address: str) -> bytes:
    """Read a planner's metrics as Prometheus does."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
        return bytes(answer.read())


def check_strangers(site: Site, variables: dict[str, str]) -> None:
    """Without its token a trainer is a stranger, where there is one."""
    without = {name: value for name, value in variables.items() if name != "DIP_TOKEN_FILE"}
    if without == variables:
        return
    with pytest.raises(grpc.RpcError) as caught:
        register(site, without)
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


def check_redis(server: RedisServer, site: Site, *, uses_it: bool) -> None:
    """The planner's plans are in the Redis, and there for planners alone."""
    with server.client() as anybody:
        assert anybody.ping()
        for forbidden in (["KEYS", "*"], ["GET", "dip:1:jobs"], ["CONFIG", "GET", "*"], ["SHUTDOWN"], ["ACL", "LIST"]):
            with pytest.raises(redis.exceptions.ResponseError, match=r"NOPERM|no permissions"):
                anybody.execute_command(*forbidden)
    password = (site.secrets / "redis" / "password").read_text()
    with redis.Redis(port=server.port, username="planner", password=password) as planner:
        assert bool(planner.smembers("dip:1:jobs")) == uses_it
        for forbidden in (["CONFIG", "GET", "*"], ["GET", "other"], ["FLUSHALL"]):
            with pytest.raises(redis.exceptions.ResponseError):
                planner.execute_command(*forbidden)
