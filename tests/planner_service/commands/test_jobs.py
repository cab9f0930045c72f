"""Shows what `dip jobs` tells of a planner's jobs, to people and to programs, and how it ends without an answer."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from dip.planner.v1 import planner_pb2 as pb
from fake_planner import FakePlanner
from serving import client, planner, register, run
from waiting import PATIENCE_S
from watched_jobs import documented, in_thread, trained

from planner_service.commands.failure import BAD_INPUT, NOT_ALLOWED, PLANNER_FAILED, UNREACHABLE
from planner_service.watching import live
from planner_service.watching.failures import AwayError

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands.conftest import Ran

NOBODY = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "CA_FILE", "TOKEN_FILE"):
        monkeypatch.delenv(f"DIP_{'PLANNER_' if name == 'ENDPOINT' else ''}{name}", raising=False)


def test_jobs_are_listed_with_how_far_they_are(dip: Callable[..., Ran]) -> None:
    async def scenario() -> None:
        async with trained(search_workers=2) as server, client(server) as stub:
            await stub.RegisterJob(register("another"))
            await stub.RegisterJob(register("closed"))
            await stub.CloseJob(pb.CloseJobRequest(job_id="closed"))
            ran = await in_thread(dip, "jobs", "--endpoint", server.address)
            assert (ran.code, ran.err) == (0, "")
            header, *rows = ran.out.splitlines()
            assert re.split(r"\s{2,}", header) == [
                *("job", "attempt of", "ranks", "needs", "planned", "lead", "fell back", "waiting", "state")
            ]
            assert [re.split(r"\s{2,}", row) for row in rows] == [
                ["another", "1", "1 x 2", "0", "-", "+0", "-", "0", "new"],
                ["closed", "1", "1 x 2", "0", "-", "+0", "-", "0", "closed"],
                ["job", "1", "2 x 2", "2", "3", "+2", "1 of 2", "1", "ahead"],
            ]

    run(scenario())


def test_jobs_are_printed_as_documented_json(dip: Callable[..., Ran]) -> None:
    async def scenario() -> None:
        async with trained() as server:
            ran = await in_thread(dip, "jobs", "--json", "--endpoint", server.address)
            found = json.loads(ran.out)
            assert found.keys() == documented("jobs")
            (job,) = found["jobs"]
            assert job.keys() == documented("job")
            quiet_ms = job.pop("quiet_ms")
            assert 0 <= quiet_ms <= 1000 * PATIENCE_S
            assert found["planner"] == server.address
            assert job == {
                "job_id": "job",
                "attempt": 1,
                "state": "ahead",
                "closed": False,
                "ranks": 2,
                "replicas": 2,
                "needed_iteration": 2,
                "last_planned_iteration": 3,
                "last_reported_iteration": 1,
                "lead": 2,
                "waiting_batches": 1,
                "recent_reported_iterations": 2,
                "recent_fallback_iterations": 1,
            }

    run(scenario())


def test_no_jobs_are_no_error(dip: Callable[..., Ran]) -> None:
    async def scenario() -> None:
        async with planner() as server:
            ran = await in_thread(dip, "jobs", "--endpoint", server.address)
            assert (ran.code, ran.out.startswith("No jobs")) == (0, True)

    run(scenario())


def test_the_next_planner_is_asked_where_the_first_is_away(
    dip: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with trained() as server:
            monkeypatch.setenv("DIP_PLANNER_ENDPOINT", f"{NOBODY},{server.address}")
            ran = await in_thread(dip, "jobs", "--json")
            assert json.loads(ran.out)["planner"] == server.address

    run(scenario())


def test_an_absent_planner_is_said_with_what_to_check(dip: Callable[..., Ran]) -> None:
    ran = dip("jobs", "--endpoint", NOBODY)
    assert (ran.code, ran.out) == (UNREACHABLE, "")
    assert NOBODY in ran.err
    assert "nothing listens there" in ran.err
    assert "dip serve" in ran.err
    of_two = dip("jobs", "--endpoint", f"{NOBODY},127.0.0.1:2", "--watch")
    assert of_two.code == UNREACHABLE
    assert [address in of_two.err for address in (NOBODY, "127.0.0.1:2")] == [True, True]


def test_a_misspelt_variable_is_said(dip: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIP_TOKEN", "/run/token")
    ran = dip("jobs", "--endpoint", NOBODY)
    assert ran.code == UNREACHABLE
    assert ran.err.startswith("dip: DIP_TOKEN: is set, but there is no such setting; is DIP_TOKEN_FILE meant?\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--endpoint", "nonsense"], "--endpoint: 'nonsense'; must be host:port"),
        (["--endpoint", ""], "--endpoint: ''; must be host:port"),
        (["--token-file", "/no/such/token"], "DIP_TOKEN_FILE: '/no/such/token'; cannot be read"),
        (["--interval", "0"], "--interval is 0, must be from 0.1"),
        (["--interval", "nan"], "--interval is nan"),
    ],
)
def test_bad_options_are_said(dip: Callable[..., Ran], arguments: list[str], said: str) -> None:
    ran = dip("jobs", *arguments)
    assert ran.code == BAD_INPUT
    assert said in ran.err


def test_tls_and_plain_text_are_told_apart(dip: Callable[..., Ran], tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    for name, blob in (
        ("ca", authority.cert_pem),
        ("key", issued.private_key_pem),
        ("cert", issued.cert_chain_pems[0]),
    ):
        blob.write_to_path(str(tmp_path / name))
    tls = {"tls_cert_file": tmp_path / "cert", "tls_key_file": tmp_path / "key"}

    async def scenario() -> None:
        async with planner() as plain, planner(**tls) as secure:
            ca = ("--ca-file", tmp_path / "ca")
            assert (await in_thread(dip, "jobs", "--endpoint", secure.address, *ca)).code == 0
            no_tls = await in_thread(dip, "jobs", "--endpoint", plain.address, *ca)
            assert (no_tls.code, "no TLS at that address" in no_tls.err) == (UNREACHABLE, True)
            wants_tls = await in_thread(dip, "jobs", "--endpoint", secure.address)
            assert (wants_tls.code, "DIP_TLS_CA_FILE" in wants_tls.err) == (UNREACHABLE, True)
            assert "Check that `dip serve` runs" not in no_tls.err + wants_tls.err  # it does

    run(scenario())


def test_a_caller_without_its_token_is_told_to_bring_one(dip: Callable[..., Ran], tmp_path: Path) -> None:
    access, token = tmp_path / "access.toml", tmp_path / "token"
    access.write_text('[[tokens]]\nname = "a"\nsha256 = "' + "0" * 64 + '"\nroles = ["viewer"]\njobs = ["*"]\n')
    access.chmod(0o600)
    token.write_text("not the one\n".replace(" ", "-"))

    async def scenario() -> None:
        async with planner(access_file=access) as server:
            ran = await in_thread(dip, "jobs", "--endpoint", server.address)
            assert (ran.code, "DIP_TOKEN_FILE" in ran.err) == (NOT_ALLOWED, True)
            wrong = await in_thread(dip, "jobs", "--endpoint", server.address, "--token-file", token)
            assert (wrong.code, str(token) in wrong.err) == (NOT_ALLOWED, True)
            assert "not-the-one" not in wrong.err

    run(scenario())


def test_a_viewer_sees_its_own_jobs(dip: Callable[..., Ran], tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    entry = '[[tokens]]\nname = "{0}"\nsha256 = "{1}"\nroles = ["{2}"]\njobs = ["{3}"]\n'
    entries = []
    for name, role, jobs in (("own", "operator", "*"), ("view", "viewer", "a*")):
        token = f"{name}-{'x' * 40}"
        (tmp_path / name).write_text(token)
        (tmp_path / name).chmod(0o600)
        entries.append(entry.format(name, hashlib.sha256(token.encode()).hexdigest(), role, jobs))
    access.write_text("".join(entries))
    access.chmod(0o600)

    async def scenario() -> None:
        async with planner(access_file=access) as server, client(server) as stub:
            operator = (("authorization", f"Bearer {(tmp_path / 'own').read_text()}"),)
            for job_id in ("a1", "b1"):
                await stub.RegisterJob(register(job_id), metadata=operator)
            options = ("--endpoint", server.address, "--token-file", tmp_path / "view")
            jobs = await in_thread(dip, "jobs", "--json", *options)
            assert [job["job_id"] for job in json.loads(jobs.out)["jobs"]] == ["a1"]
            assert (await in_thread(dip, "status", "a1", *options)).code == 0
            others = await in_thread(dip, "status", "b1", *options)
            assert (others.code, others.out) == (NOT_ALLOWED, "")

    run(scenario())


def test_what_is_no_planner_is_said(dip: Callable[..., Ran]) -> None:
    fake = FakePlanner()
    endpoint = fake.listen()
    try:
        ran = dip("jobs", "--endpoint", endpoint)
    finally:
        fake.stop()
    assert (ran.code, "is no planner, a much older one" in ran.err) == (PLANNER_FAILED, True)


class Clock:
    """Stands for `time`, and ends a watch after so many pauses, doing something in each of them."""

    strftime = staticmethod(time.strftime)

    def __init__(self, *steps: Callable[[], Any]) -> None:
        self._steps = list(steps)
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if not self._steps:
            raise KeyboardInterrupt
        self._steps.pop(0)()


def test_a_watch_prints_what_changes_and_outlasts_an_outage(
    dip: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = [pb.JobStatus(job_id="a", attempt=1, last_planned_iteration=3, last_reported_iteration=1)]
    answers: list[list[pb.JobStatus] | AwayError] = [fake, fake, AwayError("gone"), AwayError("gone"), fake, []]

    def jobs(_: object) -> list[pb.JobStatus]:
        answer = answers.pop(0)
        if isinstance(answer, AwayError):
            raise answer
        return answer

    monkeypatch.setattr("planner_service.watching.planner.PlannerClient.jobs", jobs)
    clock = Clock(*[lambda: None] * 5)
    monkeypatch.setattr(live, "time", clock)
    ran = dip("jobs", "--watch", "--interval", "0.5")
    assert ran.code == 130
    assert [line.partition(" ")[2].partition(";")[0] for line in ran.out.splitlines()] == [
        "a: planned 2 iterations ahead of what ranks have run",
        "gone",
        "the planner answers again",
        "a: gone",
    ]
    assert clock.slept == [0.5] * 6


def test_a_watch_in_json_prints_an_object_a_line(dip: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with trained() as server:
            monkeypatch.setattr(live, "time", Clock(lambda: None))
            ran = await in_thread(dip, "jobs", "--watch", "--json", "--endpoint", server.address)
            lines = [json.loads(line) for line in ran.out.splitlines()]
            assert [line["jobs"][0]["job_id"] for line in lines] == ["job", "job"]

    run(scenario())


def test_a_closed_pipe_ends_it_quietly() -> None:
    async def scenario() -> None:
        async with planner() as server:
            options = ("--watch", "--json", "--interval", "0.1", "--endpoint", server.address)
            command = [sys.executable, str(Path(__file__).with_name("patient_dip.py")), "jobs", *options]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                assert process.stdout is not None
                assert process.stderr is not None
                await in_thread(process.stdout.readline)
                process.stdout.close()
                assert (await in_thread(process.wait), process.stderr.read()) == (141, b"")

    run(scenario())
