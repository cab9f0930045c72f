"""Each overlay's planner starts with the very settings of its files, is healthy, and answers its trainers alone."""

from __future__ import annotations

import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from deploy.rendering import KUBERNETES, OVERLAYS, needs_kubectl, overlay
from deploy.running import SERVICE, UNIX
from deploy.site import PATIENCE_S, Site, is_serving
from deploy.workloads import TRAINER_OF_SHARED, Container, planners, trainers
from dip.connecting import ClientFiles, CredentialSource, Endpoint
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from needed import needs_openssl
from redis_cases import needs_redis
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Call = Callable[[str, Any], Any]

pytestmark = [needs_kubectl, needs_openssl, needs_redis]

CONFIGURATION = (KUBERNETES / "base/redis/valkey.conf").read_text()
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


@contextmanager
def called(site: Site, variables: dict[str, str]) -> Iterator[Call]:
    """Yield what calls the planner as an agent with these variables would."""
    files = ClientFiles.from_environment(site.settings(variables))
    endpoint = Endpoint.parse(site.endpoint(variables["DIP_PLANNER_ENDPOINT"]))
    files.check([endpoint])
    credentials = CredentialSource(files).current()
    with credentials.channel(endpoint) as channel:
        stub = pb_grpc.PlannerServiceStub(channel)
        yield lambda method, request: getattr(stub, method)(
            request, timeout=PATIENCE_S, metadata=credentials.metadata(), wait_for_ready=True
        )


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_planner_starts_as_configured(name: str, tmp_path: Path) -> None:
    objects = overlay(name)
    (planner,) = planners(objects)
    (agent,) = [each.settings for each in trainers(objects)] or [TRAINER_OF_SHARED]
    site = site_of(tmp_path, [planner, *trainers(objects)])
    with site.redis(CONFIGURATION) as server:
        site.use_redis(server)
        settings = site.settings(planner.settings)
        with site.planner(settings):
            for service in (SERVICE, ""):
                until(lambda service=service: is_serving(settings["DIP_HEALTH_LISTEN"], service))
            if settings["DIP_LISTEN"].startswith(UNIX):
                mode = Path(settings["DIP_LISTEN"].removeprefix(UNIX)).stat().st_mode
                assert mode & 0o777 == int(settings["DIP_SOCKET_MODE"], 8)
            assert b"dip_queue_batches" in scraped(settings["DIP_METRICS_LISTEN"])
            with called(site, agent) as call:
                assert not call("ListJobs", pb.ListJobsRequest()).jobs
            without = {name: value for name, value in agent.items() if name != "DIP_TOKEN_FILE"}
            if without != agent:
                with called(site, without) as call, pytest.raises(grpc.RpcError) as caught:
                    call("ListJobs", pb.ListJobsRequest())
                assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


def scraped(address: str) -> bytes:
    """Read a planner's metrics as Prometheus does."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
        return bytes(answer.read())
