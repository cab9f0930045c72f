"""Shows that a UNIX socket lets in whom its permissions say, from its first moment on, and asks for tokens as ever."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from access_files import AccessFile, bearer
from dip.planner.v1 import planner_pb2 as pb
from serving import client, planner, refusal, register, run

from planner_service import settings as names
from planner_service.access import current_caller
from planner_service.server.listening import listen
from planner_service.server.servicer import PlannerServicer

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534
CONNECT_AS_NOBODY = f"""
import os, socket, sys
os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
socket.socket(socket.AF_UNIX).connect(sys.argv[1])
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may look into."""
    with tempfile.TemporaryDirectory(prefix="dip-socket-") as made:
        Path(made).chmod(0o755)
        yield Path(made) / "planner.sock"


def listed(path: Path) -> str:
    """Permissions as people see them."""
    said = subprocess.run(["ls", "-l", path], capture_output=True, text=True, check=True).stdout
    return said.split()[0]


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
@pytest.mark.parametrize(("mode", "seen"), [(0o600, "srw-------"), (0o660, "srw-rw----"), (0o666, "srw-rw-rw-")])
def test_permissions_are_as_set_from_the_first_moment(
    place: Path, mode: int, seen: str, mask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    when_bound = []
    chmod = Path.chmod

    def noted(path: Path, mode: int) -> None:
        when_bound.append(listed(path))
        chmod(path, mode)

    async def scenario() -> None:
        server = grpc.aio.server()
        monkeypatch.setattr(Path, "chmod", noted)
        before = os.umask(mask)
        try:
            listen(server, f"unix://{place}", names.LISTEN, socket_mode=mode)
            assert os.umask(mask) == mask  # as it was
        finally:
            os.umask(before)
        assert listed(place) == seen
        await server.stop(grace=0)

    run(scenario())
    assert when_bound == [seen]


@pytest.mark.parametrize(("settings", "seen"), [({}, "srw-------"), ({"socket_mode": "660"}, "srw-rw----")])
def test_socket_is_its_owners_alone_unless_set(place: Path, settings: dict[str, str], seen: str) -> None:
    async def scenario() -> None:
        async with planner(listen=f"unix://{place}", **settings) as server, client(server) as stub:
            assert listed(place) == seen
            await stub.ListJobs(pb.ListJobsRequest())

    run(scenario())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize(("mode", "gets_in"), [("0600", False), ("0660", False), ("0666", True)])
def test_another_user_gets_in_where_permissions_say_so(place: Path, mode: str, gets_in: bool) -> None:
    async def scenario() -> None:
        async with planner(listen=f"unix://{place}", socket_mode=mode):
            command = [sys.executable, "-I", "-c", CONNECT_AS_NOBODY, str(place)]
            other = subprocess.run(command, capture_output=True, text=True, check=False)
            assert (other.returncode == 0) is gets_in, other.stderr
            assert gets_in or "PermissionError" in other.stderr

    run(scenario())


def test_socket_of_the_health_port_has_the_same_permissions(place: Path) -> None:
    async def scenario() -> None:
        async with planner(health_listen=f"unix://{place}", socket_mode="0660"):
            assert listed(place) == "srw-rw----"

    run(scenario())


def test_tokens_are_asked_for_on_a_socket_too_and_without_them_callers_are_one(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = []
    list_jobs = PlannerServicer.list_jobs

    async def noted(self: PlannerServicer, request: pb.ListJobsRequest, context: Any) -> pb.ListJobsResponse:
        callers.append(current_caller().name)
        return await list_jobs(self, request, context)

    monkeypatch.setattr(PlannerServicer, "list_jobs", noted)
    file = AccessFile(place.with_name("access.toml"))
    token = file.let_in("sidecar")

    async def scenario() -> None:
        async with planner(listen=f"unix://{place}", access_file=file.path) as server, client(server) as stub:
            error = await refusal(stub.RegisterJob(register()))
            assert error.code() == grpc.StatusCode.UNAUTHENTICATED
            await stub.ListJobs(pb.ListJobsRequest(), metadata=bearer(token))
        async with planner(listen=f"unix://{place}") as server, client(server) as stub:
            await stub.ListJobs(pb.ListJobsRequest())

    run(scenario())
    assert callers == ["token:sidecar", "unix"]
