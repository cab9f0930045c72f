"""Training with a planner that knows its callers: certificates and tokens are rotated during a run, well and badly.

A real planner and real ranks. Every loss and gradient on the way is compared with ordinary training in one process.
"""

from __future__ import annotations

import secrets
import signal
import time
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from access_files import AccessFile, bearer
from certificates import Authority
from dip.connecting import variables
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from integration.harness import LATE, PATIENT, PLANNED_AHEAD, Planner
from waiting import PATIENCE_S, until

from benchmarks.held_port import HeldPort
from trainer_agent import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from certificates import Pair
    from integration.harness import Rank, Ranks

JOB = "vlm"
# How often it is looked whether a planner has read its files again, which it does every second.
LOOK_S = 0.2
NAMED = {settings.JOB_ID: JOB}


class Details(namedtuple("Details", ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression"))):
    """What gRPC's interceptors hand on of a call."""


class WithToken(grpc.UnaryUnaryClientInterceptor):
    """Shows a token with every call."""

    def __init__(self, token: str) -> None:
        self._metadata = bearer(token)

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        with_token = Details(
            details.method, details.timeout, self._metadata, details.credentials, details.wait_for_ready, None
        )
        return continuation(with_token, request)


class GuardedPlanner(Planner):
    """``dip serve`` with an access file, on a UNIX socket, or with TLS for clients that have a certificate."""

    def __init__(self, directory: Path, *, authority: Authority | None = None) -> None:
        self.access = AccessFile(directory / "access.toml")
        self._token = self.access.let_in("test", roles=["operator"])
        own = {"DIP_ACCESS_FILE": str(self.access.path)}
        self.authority = authority
        if authority is not None:
            self.pair = authority.pair()
            self.client_ca = directory / "clients.pem"
            self.client_ca.write_bytes(authority.pem)
            self._reader = authority.pair("test")
            own |= self.pair.server_environment() | {"DIP_TLS_CLIENT_CA_FILE": str(self.client_ca)}
        super().__init__(directory, own)
        if authority is not None:
            self._held = HeldPort()  # it is killed, and starts there again
            self.endpoint = f"127.0.0.1:{self._held.number}"

    def _channel(self) -> grpc.Channel:
        return grpc.intercept_channel(self.channel(), WithToken(self._token))

    def channel(self, credentials: grpc.ChannelCredentials | None = None) -> grpc.Channel:
        """Connect as the test, or with other credentials."""
        if self.authority is None:
            return super()._channel()
        credentials = credentials or self.authority.trusted(self._reader)
        return grpc.secure_channel(self.endpoint, credentials, [("grpc.use_local_subchannel_pool", 1)])

    def wait_until_trusted(self, credentials: grpc.ChannelCredentials) -> None:
        """Wait until who shows these is connected to; by the token that is missing then, they are not known."""
        self._wait_for({grpc.StatusCode.UNAUTHENTICATED}, credentials=credentials)

    def wait_until_known(self, token: str) -> None:
        """Wait until the planner has read who shows a token, whatever it lets them do."""
        known = {grpc.StatusCode.OK, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED}
        self._wait_for(known, token=token)

    def wait_until_unknown(self, token: str) -> None:
        """Wait until it does not any more."""
        self._wait_for({grpc.StatusCode.UNAUTHENTICATED}, token=token)

    def _wait_for(
        self, codes: set[grpc.StatusCode], *, token: str = "", credentials: grpc.ChannelCredentials | None = None
    ) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with self.channel(credentials) as channel:
                call = pb_grpc.PlannerServiceStub(channel).GetJob.future(
                    pb.GetJobRequest(job_id=JOB), timeout=PATIENCE_S, metadata=bearer(token) if token else ()
                )
                if call.code() in codes:
                    return
            assert time.monotonic() < deadline, call.details()
            time.sleep(LOOK_S)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def start_planner(tmp_path: Path) -> Iterator[Callable[..., GuardedPlanner]]:
    started: list[GuardedPlanner] = []

    def start(authority: Authority | None = None) -> GuardedPlanner:
        started.append(GuardedPlanner(tmp_path, authority=authority))
        started[-1].start()
        return started[-1]

    yield start
    for planner in started:
        planner.close()


def connecting(token_file: Path, ca_file: Path, pair: Pair) -> dict[str, str]:
    """The variables of a rank that connects with these."""
    return (
        PATIENT
        | NAMED
        | {
            variables.TOKEN_FILE: str(token_file),
            variables.CA_FILE: str(ca_file),
            variables.CERT_FILE: str(pair.certificate_file),
            variables.KEY_FILE: str(pair.key_file),
        }
    )


def warnings_of(rank: Rank) -> list[str]:
    """What a rank says of the stream of its schedules."""
    return [line for line in rank.log().splitlines() if " WARNING trainer_agent.prefetch: " in line]


def test_certificates_of_both_sides_and_the_token_are_rotated_and_no_stream_breaks(
    tmp_path: Path,
    authority: Authority,
    start_planner: Callable[..., GuardedPlanner],
    start_ranks: Callable[..., Ranks],
) -> None:
    planner = start_planner(authority)
    old = planner.access.let_in("vlm", jobs=[JOB])
    planner.wait_until_known(old)
    token_file, ca_file, pair = tmp_path / "token", tmp_path / "planners.pem", authority.pair("agent")
    token_file.write_text(old)
    ca_file.write_bytes(authority.pem)
    ranks = start_ranks(planner.endpoint, planner.endpoint, variables=connecting(token_file, ca_file, pair))
    ranks.wait_until_ready()
    ranks.go_until_planned(planner, JOB)

    # All of it comes from another authority from now on. Each side first trusts both, then shows the new.
    new_authority = Authority(tmp_path, "new")
    new_pair = new_authority.pair("agent")
    for trusted in (planner.client_ca, ca_file):
        trusted.write_bytes(authority.pem + new_authority.pem)
    planner.wait_until_trusted(
        grpc.ssl_channel_credentials(authority.pem + new_authority.pem, new_pair.key, new_pair.chain)
    )
    pair.overwrite(new_pair)
    ranks.go_planned(planner, JOB, 3)
    planner.pair.overwrite(new_authority.pair())
    planner.wait_until_trusted(new_authority.trusted(new_pair))
    planner.authority, planner._reader = new_authority, new_pair
    for trusted in (planner.client_ca, ca_file):
        trusted.write_bytes(new_authority.pem)
    ranks.go_planned(planner, JOB, 3)

    # And so does the token: known beside the old one, then shown, then alone, which ends the streams of the old one.
    new = planner.access.let_in("vlm", old, secrets.token_urlsafe(32), jobs=[JOB])
    planner.wait_until_known(new)
    token_file.write_text(new)
    ranks.go_planned(planner, JOB, 2)
    planner.access.let_in("vlm", new, jobs=[JOB])
    planner.wait_until_unknown(old)
    for rank in range(2):
        until(lambda rank=rank: warnings_of(ranks[rank]), told=ranks[rank].log)
    ranks.go_planned(planner, JOB, PLANNED_AHEAD + 1)
    for rank in range(2):
        (warning,) = warnings_of(ranks[rank])
        assert "the token that this stream was opened with is withdrawn" in warning

    # Who has to connect again does it with what is new.
    planner.send(signal.SIGKILL)
    planner.start()
    for _ in range(PLANNED_AHEAD + 1):
        ranks.go_until_planned(planner, JOB)
    assert all(one["reconnects"] >= 2 for one in ranks.finish())
    for rank in range(2):
        assert old not in ranks[rank].log()
        assert new not in ranks[rank].log()


def test_a_token_that_is_rotated_wrongly_costs_plans_until_it_is_set_right(
    tmp_path: Path, start_planner: Callable[..., GuardedPlanner], start_ranks: Callable[..., Ranks]
) -> None:
    planner = start_planner()
    token = planner.access.let_in("vlm", jobs=[JOB])
    planner.wait_until_known(token)
    token_file = tmp_path / "token"
    token_file.write_text(token)
    own = NAMED | {variables.TOKEN_FILE: str(token_file)}
    ranks = start_ranks(planner.endpoint, variables=own)
    ranks.wait_until_ready()
    ranks.go_until_planned(planner, JOB)
    token_file.write_text("not-the-token")
    ranks.go_until_fallback("the batch is not handed over (UNAUTHENTICATED: the token is not known here")
    # Batches that were handed over before have plans, be it that the first of them came too late.
    assert all(ranks.go(PLANNED_AHEAD + 1)[PLANNED_AHEAD - 1 :])
    token_file.write_text(token)
    ranks.go_until_planned(planner, JOB)
    until(lambda: "the planner lets this client in again" in ranks[0].log(), told=ranks[0].log)
    (counted,) = ranks.finish()
    assert counted["reconnects"] == 0
    log = ranks[0].log()
    assert log.count("ERROR") == 1
    assert token not in log


def test_the_planner_is_told_why_a_rank_fell_back(
    tmp_path: Path, start_planner: Callable[..., GuardedPlanner], start_ranks: Callable[..., Ranks]
) -> None:
    planner = start_planner()
    token_file = tmp_path / "token"
    other = planner.access.let_in("other", jobs=["other-*"])
    planner.wait_until_known(other)
    token_file.write_text(other)
    ranks = start_ranks(planner.endpoint, variables=NAMED | {variables.TOKEN_FILE: str(token_file)})
    ranks.wait_until_ready()
    assert all(ranks.go(2))
    why = "token:other may not touch job 'vlm'; its jobs are other-*"
    until(lambda: why in ranks[0].log(), told=ranks[0].log)
    good = planner.access.let_in("vlm", jobs=[JOB])
    planner.wait_until_known(good)
    token_file.write_text(good)
    ranks.go_until_planned(planner, JOB)
    # One more without a plan, which the planner is told of: it is gone for a moment when the iteration begins.
    planner.send(signal.SIGSTOP)
    while not ranks.go(1)[0]:  # what was planned ahead
        pass
    reason, iteration = ranks.reasons[-1][0], len(ranks.fallbacks) - 1
    assert reason.startswith(LATE), reason
    planner.send(signal.SIGCONT)
    ranks.go_until_planned(planner, JOB)
    request = pb.GetJobRequest(job_id=JOB, recent_iterations=64)
    with planner._channel() as channel:
        stub = pb_grpc.PlannerServiceStub(channel)

        def told() -> list[tuple[bool, str]]:
            recent = stub.GetJob(request, timeout=PATIENCE_S).recent
            ranks_of_it = [rank for status in recent if status.iteration == iteration for rank in status.ranks]
            return [(rank.fallback, rank.fallback_reason) for rank in ranks_of_it]

        until(told)
        assert told() == [(True, reason)]
    ranks.finish()
