"""Shows that a name which no job may have is refused by every method, is in no key, and forges no line of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import JOB_ID_RULE
from google.protobuf import message_factory
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from hostile_names import HOSTILE_NAMES, USUAL_NAMES
from integration.harness import patient_process
from redis_cases import keys_of, needs_redis
from waiting import PATIENCE_S

from benchmarks.fuzzing.requests import register_job
from benchmarks.planner_process import CHANNEL_OPTIONS
from benchmarks.redis_server import RedisServer
from planner_service import settings as names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.planner_process import PlannerProcess

SERVICE = pb.DESCRIPTOR.services_by_name["PlannerService"]
METHODS = [
    method
    for method in SERVICE.methods
    if "job_id" in message_factory.GetMessageClass(method.input_type).DESCRIPTOR.fields_by_name
]
LONGEST_LINE = 1_000
TRACES = ("forged", "passwd", "jndi", "\0", "\x1b", "\u202e", "team/job", "%2e", "x" * 1_000)
"""Parts of the names by which a key would be known that has one."""


class Site:
    """A planner over a Redis of its own, with a connection."""

    def __init__(self, planner: PlannerProcess, server: RedisServer, channel: grpc.Channel) -> None:
        self.planner = planner
        self.server = server
        self.channel = channel

    def refusal(self, method: object, name: str) -> grpc.RpcError:
        """Call a method with a name, in an otherwise valid registration or with nothing else."""
        request_type = message_factory.GetMessageClass(method.input_type)
        is_registration = request_type is pb.RegisterJobRequest
        request = register_job("job", 1, attempt=1) if is_registration else request_type()
        request.job_id = name
        call = self.channel.unary_unary(f"/{SERVICE.full_name}/{method.name}")
        with pytest.raises(grpc.RpcError) as caught:
            call(request.SerializeToString(), timeout=PATIENCE_S)
        return caught.value


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with (
        RedisServer() as server,
        patient_process({names.STORE: server.url, names.LOG_LEVEL: "DEBUG"}) as planner,
        grpc.insecure_channel(planner.address, options=CHANNEL_OPTIONS) as channel,
    ):
        yield Site(planner, server, channel)
        with keys_of(server) as keys:
            assert not [key for key in keys if any(trace in key for trace in TRACES)]
            assert {key.split(":")[3] for key in keys if key.startswith("dip:1:job:")} <= {"job"}
        # Refusals are logged: escaped, cut, and each in one line of its own.
        lines = planner.log().splitlines()
        assert not [line for line in lines if line.startswith("2026-01-01") or line.startswith("forged")]
        assert not [line for line in lines if not line.isprintable() or len(line) > LONGEST_LINE]
        assert planner.troubles() == []


@needs_redis
@pytest.mark.parametrize("method", METHODS, ids=[method.name for method in METHODS])
def test_hostile_name_is_refused_with_the_field(site: Site, method: object) -> None:
    for name in HOSTILE_NAMES.values():
        error = site.refusal(method, name)
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        (detail,) = rpc_status.from_call(error).details
        told = error_details_pb2.BadRequest()
        assert detail.Unpack(told)
        (violation,) = told.field_violations
        assert violation.field == "job_id"
        assert violation.description.endswith(JOB_ID_RULE)


@needs_redis
def test_usual_name_is_taken(site: Site) -> None:
    stub = site.channel.unary_unary(f"/{SERVICE.full_name}/RegisterJob")
    stub(register_job("job", 1, attempt=1).SerializeToString(), timeout=PATIENCE_S)
    with keys_of(site.server) as keys:
        assert "dip:1:job:job" in keys
    assert "job" in USUAL_NAMES
