"""Certificates and tokens that change under a client: no stream breaks, and what follows uses the new ones."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import cases
import grpc
import pytest
from certificates import YESTERDAY, Authority
from dip.connecting import ClientFiles, CredentialSource, Endpoints
from dip.planner.v1 import planner_pb2 as pb
from fake_planner import FakePlanner, eventually
from waiting import PATIENCE_S

from trainer_agent.call_error import PlannerCallError
from trainer_agent.client import PlannerClient
from trainer_agent.connections import Connections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from certificates import Pair

    Make = Callable[[str], tuple[PlannerClient, Connections]]

JOB = pb.GetJobRequest(job_id="job")
STREAM = pb.StreamSchedulesRequest(job_id="job", attempt=7)
REGISTRATION = pb.RegisterJobRequest(job_id="job", attempt=7, spec=cases.job())
NOBODY = "127.0.0.1:1"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.pair("agent")


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("first")
    return file


@pytest.fixture
def planner(authority: Authority) -> Iterator[FakePlanner]:
    planner = FakePlanner(plans_at_once=True)
    yield planner
    planner.stop()


@pytest.fixture
def address(planner: FakePlanner, authority: Authority) -> str:
    """Where the planner listens, with TLS and for clients with a certificate."""
    own = authority.pair()
    return planner.listen(
        credentials=grpc.ssl_server_credentials([(own.key, own.chain)], authority.pem, require_client_auth=True)
    )


@pytest.fixture
def make(authority: Authority, pair: Pair, token_file: Path) -> Iterator[Make]:
    made: list[PlannerClient] = []

    def make(endpoints: str) -> tuple[PlannerClient, Connections]:
        where = Endpoints.parse(endpoints)
        files = ClientFiles(
            ca_file=str(authority.file),
            cert_file=str(pair.certificate_file),
            key_file=str(pair.key_file),
            token_file=str(token_file),
        )
        connections = Connections(where)
        made.append(PlannerClient(where, files=files, connections=connections))
        return made[-1], connections

    yield make
    for client in made:
        client.close()


def submission(iteration: int) -> pb.SubmitBatchRequest:
    batch = cases.batch(cases.documents(2))
    return pb.SubmitBatchRequest(job_id="job", attempt=7, iteration=iteration, batch=batch)


def test_a_new_certificate_gets_a_connection_of_its_own_and_the_stream_keeps_the_old_one(
    planner: FakePlanner, address: str, authority: Authority, pair: Pair, make: Make
) -> None:
    client, connections = make(address)
    client.register_job(REGISTRATION)
    stream = iter(client.stream_schedules(STREAM))
    client.submit_batch(submission(0))
    assert next(stream).iteration == 0
    pair.overwrite(authority.pair("agent"))
    for iteration in range(1, 4):
        client.submit_batch(submission(iteration))
        assert next(stream).iteration == iteration
    before, after = planner.peers["SubmitBatch"][0], planner.peers["SubmitBatch"][1]
    assert planner.peers["StreamSchedules"] == [before]
    assert planner.peers["SubmitBatch"] == [before, after, after, after]
    assert before != after
    assert len(connections._outdated) == 1


def test_the_old_connection_is_closed_with_the_last_that_it_carries(
    planner: FakePlanner, address: str, authority: Authority, pair: Pair, make: Make
) -> None:
    client, connections = make(address)
    client.register_job(REGISTRATION)
    streams = [client.stream_schedules(STREAM) for _ in range(2)]
    planner.wait_for_calls("StreamSchedules", 2)
    pair.overwrite(authority.pair("agent"))
    client.get_job(JOB)
    (outdated,) = connections._outdated
    streams[0].cancel()
    eventually(lambda: outdated.under_way == 1)
    assert connections._outdated == [outdated]
    streams[1].cancel()
    eventually(lambda: not connections._outdated)
    eventually(lambda: is_closed(outdated.channel))


def is_closed(channel: grpc.Channel) -> bool:
    try:
        channel.unary_unary("/none")(b"", timeout=PATIENCE_S)
    except ValueError:  # "Cannot invoke RPC on closed channel!"
        return True
    except grpc.RpcError:
        return False
    return False


def test_an_old_connection_that_carries_nothing_is_closed_at_once(
    address: str, authority: Authority, pair: Pair, make: Make
) -> None:
    client, connections = make(address)
    client.register_job(REGISTRATION)
    with connections.current(client._credentials.current()) as connection:
        assert connection is not None
    eventually(lambda: connection.under_way == 0)
    pair.overwrite(authority.pair("agent"))
    client.get_job(JOB)
    assert connections._outdated == []
    eventually(lambda: is_closed(connection.channel))


def test_a_stream_that_breaks_is_opened_again_with_the_new_certificate(
    planner: FakePlanner, address: str, authority: Authority, pair: Pair, make: Make
) -> None:
    expired = authority.pair("agent", not_after=YESTERDAY)
    client, _ = make(address)
    client.register_job(REGISTRATION)
    stream = client.stream_schedules(STREAM)
    planner.wait_for_calls("StreamSchedules", 1)
    pair.overwrite(authority.pair("agent"))
    planner.break_streams(grpc.StatusCode.UNAVAILABLE, "draining")
    with pytest.raises(PlannerCallError, match="draining"):
        list(stream)
    again = client.stream_schedules(STREAM)
    planner.wait_for_calls("StreamSchedules", 2)
    first, second = planner.peers["StreamSchedules"]
    assert first != second
    again.cancel()
    # And one that the planner does not take, with a word that says what is wrong.
    pair.overwrite(expired)
    with pytest.raises(PlannerCallError, match="does not trust DIP_CLIENT_CERT_FILE: it may have expired"):
        client.get_job(JOB)


def test_files_that_vanish_break_nothing(
    planner: FakePlanner, address: str, pair: Pair, token_file: Path, authority: Authority, make: Make
) -> None:
    client, _ = make(address)
    client.register_job(REGISTRATION)
    for file in (pair.certificate_file, pair.key_file, token_file, authority.file):
        file.unlink()
    client.submit_batch(submission(0))
    assert planner.peers["SubmitBatch"] == planner.peers["RegisterJob"]
    assert planner.shown == ["Bearer first"] * 2


def test_a_new_token_goes_out_with_the_next_call_on_the_same_connection(
    planner: FakePlanner, address: str, token_file: Path, make: Make
) -> None:
    client, _ = make(address)
    client.register_job(REGISTRATION)
    stream = iter(client.stream_schedules(STREAM))
    planner.wait_for_calls("StreamSchedules", 1)
    planner.tokens = frozenset({"second"})
    token_file.write_text("second")
    client.submit_batch(submission(0))
    assert next(stream).iteration == 0
    assert planner.shown == ["Bearer first", "Bearer first", "Bearer second"]
    assert len({*planner.peers["RegisterJob"], *planner.peers["StreamSchedules"], *planner.peers["SubmitBatch"]}) == 1


def test_a_planner_that_is_left_loses_its_old_connections_too(
    planner: FakePlanner, address: str, authority: Authority, pair: Pair, make: Make
) -> None:
    client, connections = make(f"{address},{NOBODY}")
    client.register_job(REGISTRATION)
    stream = client.stream_schedules(STREAM)
    planner.wait_for_calls("StreamSchedules", 1)
    pair.overwrite(authority.pair("agent"))
    client.get_job(JOB)
    assert client.leave(client.endpoint, "it answers nothing")
    with pytest.raises(PlannerCallError, match="left for another planner: it answers nothing"):
        list(stream)
    assert connections._outdated == []


def test_the_end_closes_old_connections_too(
    planner: FakePlanner, address: str, authority: Authority, pair: Pair, make: Make
) -> None:
    client, _ = make(address)
    client.register_job(REGISTRATION)
    stream = client.stream_schedules(STREAM)
    planner.wait_for_calls("StreamSchedules", 1)
    pair.overwrite(authority.pair("agent"))
    client.get_job(JOB)
    client.close()
    with pytest.raises(PlannerCallError, match="CANCELLED"):
        list(stream)


def test_rotation_under_many_threads_loses_no_call(
    planner: FakePlanner, address: str, authority: Authority, pair: Pair, make: Make
) -> None:
    client, connections = make(address)
    client.register_job(REGISTRATION)
    pairs = [authority.pair("agent") for _ in range(8)]
    failures: list[Exception] = []
    rotated = threading.Event()

    def call() -> None:
        try:
            while not rotated.is_set():
                client.get_job(JOB)
        except PlannerCallError as error:
            failures.append(error)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for new in pairs:
        calls = planner.calls["GetJob"]
        pair.overwrite(new)
        planner.wait_for_calls("GetJob", calls + 8)
    rotated.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not failures
    assert len(set(planner.peers["GetJob"])) > len(pairs) / 2
    eventually(lambda: not connections._outdated)


def test_a_forked_process_leaves_its_parents_old_connections_alone(
    address: str, authority: Authority, pair: Pair, make: Make
) -> None:
    client, connections = make(address)
    client.register_job(REGISTRATION)
    with connections.current(client._credentials.current()) as connection:
        assert connection is not None
        connection.under_way += 1  # as if a stream were open there
    pair.overwrite(authority.pair("agent"))
    client.get_job(JOB)
    assert connections._outdated == [connection]
    child = os.fork()
    if child == 0:
        connections.close()
        os._exit(0 if connections.open_at(client.endpoint) is None and not connections._outdated else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not is_closed(connection.channel)


def test_a_socket_of_the_file_system_keeps_its_connection_whatever_becomes_of_certificates(
    tmp_path: Path, authority: Authority, pair: Pair, make: Make
) -> None:
    planner = FakePlanner()
    client, connections = make(planner.listen(f"unix://{tmp_path}/planner.sock"))
    client.register_job(REGISTRATION)
    before = connections.open_at(client.endpoint)
    pair.overwrite(authority.pair("agent"))
    client.get_job(JOB)
    assert connections.open_at(client.endpoint) is before
    planner.stop()


def test_credentials_are_compared_by_what_a_planner_sees(authority: Authority, pair: Pair) -> None:
    files = ClientFiles(ca_file=str(authority.file), cert_file=str(pair.certificate_file), key_file=str(pair.key_file))
    source = CredentialSource(files)
    before = source.current()
    pair.certificate_file.touch()
    assert source.current() == before
