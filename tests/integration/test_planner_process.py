"""Shows that `dip serve` as a process starts, plans with its real engine, and leaves nothing behind."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cases
import grpc
import pytest
from dip.digests import streamed_digest
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from serving import CHANNEL_OPTIONS, register, stream, submit, worker_pids
from waiting import PATIENCE_S, until

from benchmarks.held_port import HeldPort
from planner_service.check import check_plan
from planner_service.kernel_cache import CACHE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUSY_S = 0.2  # of the processor: no tail of what a worker did before
NEVER_MS = "600000"
# No search that a busy machine delays is killed for it, nor begun again, and who is waited for at the end may be late.
PATIENT = dict.fromkeys(("DIP_SOLVE_GRACE_MS", "DIP_LEASE_MS", "DIP_DRAIN_MS"), NEVER_MS)
DIP = Path(sys.executable).with_name("dip")
LISTENING = re.compile(r"serving listen=(\S+) health=(\S+) .*store=memory:// workers=(\d+)")


class Planner:
    """A `dip serve` of this test; killed at its end."""

    def __init__(self, command: list[str], **environment: str) -> None:
        addresses = dict.fromkeys(("DIP_LISTEN", "DIP_HEALTH_LISTEN", "DIP_METRICS_LISTEN"), "127.0.0.1:0")
        free = addresses | PATIENT | {"DIP_SEARCH_WORKERS": "1"}
        self.process = subprocess.Popen(
            command, env=os.environ | free | environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stderr is not None
        self.log: list[str] = []
        for line in self.process.stderr:
            self.log.append(line)
            if match := LISTENING.search(line):
                self.address, self.health_address = match[1], match[2]
                break
        else:
            raise AssertionError(f"the planner did not start:\n{''.join(self.log)}")
        # What it writes later must be read, or it would wait for that.
        self._reader = threading.Thread(target=self.log.extend, args=(self.process.stderr,))
        self._reader.start()
        self.channel = grpc.insecure_channel(self.address, options=CHANNEL_OPTIONS)
        self.stub = pb_grpc.PlannerServiceStub(self.channel)

    def end(self) -> None:
        """Kill what is left of it."""
        self.channel.close()
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def workers(self) -> list[int]:
        """Pids of its solver processes, once there are some."""
        until(lambda: bool(worker_pids(self.process.pid)))
        return worker_pids(self.process.pid)


@pytest.fixture
def serve() -> Iterator[Callable[..., Planner]]:
    """Return what starts planners."""
    started: list[Planner] = []

    def start(*command: str, **environment: str) -> Planner:
        started.append(Planner(list(command) or [str(DIP), "serve"], **environment))
        return started[-1]

    yield start
    for planner in started:
        planner.end()


def is_gone(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def take(planner: Planner, count: int, **request: Any) -> list[pb.StreamSchedulesResponse]:
    call = planner.stub.StreamSchedules(stream(**request), timeout=PATIENCE_S)
    responses = [next(call) for _ in range(count)]
    call.cancel()
    return responses


def test_a_job_from_registration_to_closing(serve: Callable[..., Planner]) -> None:
    """Register, submit, stream, report, read and close; every plan passes the check of `dip check`."""
    planner = serve()
    request = cases.request(cases.job(), cases.documents(6))
    request.job.options.budget_ms = 500
    answer = planner.stub.RegisterJob(
        pb.RegisterJobRequest(job_id="job", attempt=1, spec=request.job, representative_batch=request.batch)
    )
    for iteration in range(2):
        planner.stub.SubmitBatch(
            pb.SubmitBatchRequest(job_id="job", attempt=1, iteration=iteration, batch=request.batch)
        )
    for iteration in range(2):
        streamed = [take(planner, iteration + 1, rank=rank)[iteration].schedule for rank in range(4)]
        planner.stub.ReportExecution(
            pb.ReportExecutionRequest(
                job_id="job",
                attempt=1,
                iteration=iteration,
                plan_digest=streamed_digest(streamed[0]),
                actions=[action for action in streamed[0].schedule.actions if not action.peer],
            )
        )
        kept = planner.stub.GetPlan(pb.GetPlanRequest(job_id="job", iteration=iteration))
        assert [part.schedule for part in streamed] == list(kept.plan.ranks)
        assert {streamed_digest(part) for part in streamed} == {kept.plan.digest}
        assert kept.request.partition == kept.plan.partition == answer.partition
        assert not kept.plan.fallback
        assert check_plan(kept.request, kept.plan).faults == ()
        assert len(kept.reports) == 1
    planner.stub.CloseJob(pb.CloseJobRequest(job_id="job"))
    (status,) = planner.stub.ListJobs(pb.ListJobsRequest()).jobs
    assert (status.last_planned_iteration, status.last_reported_iteration, status.closed) == (1, 1, True)


def test_plan_call_answers_with_a_plan_that_passes_the_check(serve: Callable[..., Planner]) -> None:
    planner = serve()
    request = cases.request(cases.job(), cases.documents(4))
    request.job.options.budget_ms = 300
    plan = planner.stub.Plan(request).plan
    assert check_plan(request, plan).faults == ()


def test_health_answers_after_the_start(serve: Callable[..., Planner]) -> None:
    planner = serve()
    with grpc.insecure_channel(planner.health_address, options=CHANNEL_OPTIONS) as channel:
        status = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), wait_for_ready=True).status
    assert status == health_pb2.HealthCheckResponse.SERVING


def test_server_imports_nothing_heavy() -> None:
    code = "import sys, planner_service.server.main; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & {"numba", "numpy", "ortools", "scipy", "torch"}


def test_workers_import_no_server() -> None:
    code = "import sys, planner_service.pool.worker; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & {"grpc", "pydantic", "planner_service.server"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_during_a_solve_drains_and_exits_with_0(serve: Callable[..., Planner], number: signal.Signals) -> None:
    planner = serve(DIP_MAX_BUDGET_MS=NEVER_MS)
    planner.stub.RegisterJob(register(budget_ms=600_000))  # longer than it is waited for
    call = planner.stub.StreamSchedules(stream(), timeout=PATIENCE_S)
    call.initial_metadata()
    workers = planner.workers()
    planner.stub.SubmitBatch(submit(0))
    os.killpg(planner.process.pid, number)  # as Ctrl-C does, to workers too
    with pytest.raises(grpc.RpcError) as caught:
        list(call)  # if it hears of its worker's end first, there is still the plan found so far
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
    assert planner.process.wait(PATIENCE_S) == 0
    until(lambda: all(is_gone(worker) for worker in workers))


def test_port_in_use_is_one_line_that_says_what_to_do(serve: Callable[..., Planner]) -> None:
    planner = serve()
    second = subprocess.run(
        [DIP, "serve", "--listen", planner.address, "--health-listen", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert second.returncode == 1
    assert second.stderr == (
        f"dip serve: cannot listen on {planner.address}: another process listens there (another planner, perhaps); "
        "set DIP_LISTEN to a free address, 127.0.0.1:0 takes any free port\n"
    )


def test_store_that_cannot_be_read_is_one_line_that_says_what_is_allowed() -> None:
    environment = os.environ | {"DIP_STORE": "redis://:s3cret@127.0.0.1:99999/0"}
    failed = subprocess.run([DIP, "serve"], env=environment, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert failed.stderr == (
        "dip serve: DIP_STORE: its host cannot be read, or its port is no number from 1 to 65535; allowed are "
        "redis://[[user]:password@]host[:port][/database] and, with TLS, rediss://..., special characters of the "
        "password percent-encoded\n"
    )


def test_bad_setting_is_one_line_that_says_what_is_allowed() -> None:
    failed = subprocess.run(
        [DIP, "serve"], env=os.environ | {"DIP_LISTEN": "50061"}, capture_output=True, text=True, check=False
    )
    assert failed.returncode != 0
    assert failed.stderr == (
        "dip serve: DIP_LISTEN: holds '50061'; allowed are host:port with a port of 0 to 65535, and "
        "unix:///absolute/path\n"
    )


def test_killed_planner_takes_its_workers_along_and_can_start_again(serve: Callable[..., Planner]) -> None:
    held = HeldPort()
    first = serve(DIP_LISTEN=f"127.0.0.1:{held.number}")
    partition = first.stub.RegisterJob(register(budget_ms=60_000)).partition
    first.stub.SubmitBatch(submit(0))
    workers = first.workers()
    first.process.kill()
    until(lambda: all(is_gone(worker) for worker in workers))
    second = serve(DIP_LISTEN=first.address)
    call = second.stub.SubmitBatch.future(submit(0), wait_for_ready=True)
    assert call.code() == grpc.StatusCode.NOT_FOUND
    request = register(budget_ms=300)
    request.partition.CopyFrom(partition)
    for chunk in request.partition.chunks:
        chunk.rank = 1 - chunk.rank  # not what it would choose
    assert second.stub.RegisterJob(request).partition == request.partition
    second.stub.SubmitBatch(submit(0))
    (response,) = take(second, 1)
    assert response.HasField("schedule")


def test_worker_killed_during_a_solve_still_gives_every_rank_a_schedule(serve: Callable[..., Planner]) -> None:
    planner = serve(DIP_MAX_BUDGET_MS=NEVER_MS)
    request = cases.request(cases.job(), cases.documents(24))
    request.job.options.budget_ms = 600_000
    planner.stub.RegisterJob(pb.RegisterJobRequest(job_id="job", attempt=1, spec=request.job))
    (worker,) = planner.workers()  # it made the partition, so that it is ready
    cpu_s = process_cpu_s(worker)
    planner.stub.SubmitBatch(pb.SubmitBatchRequest(job_id="job", attempt=1, batch=request.batch))
    until(lambda: process_cpu_s(worker) > cpu_s + BUSY_S)
    os.kill(worker, signal.SIGKILL)
    parts = [take(planner, 1, rank=rank)[0].schedule for rank in range(4)]
    assert len({streamed_digest(part) for part in parts}) == 1
    kept = planner.stub.GetPlan(pb.GetPlanRequest(job_id="job"))
    assert check_plan(kept.request, kept.plan).faults == ()
    last = kept.plan.search.steps[-1].engine if kept.plan.search.steps else ""
    assert kept.plan.fallback or last == "interrupted: the solver's process ended with signal 9"
    assert planner.workers() != [worker]


def test_user_script_is_not_run_again_in_workers(serve: Callable[..., Planner], tmp_path: Path) -> None:
    script = tmp_path / "my_planner.py"
    script.write_text(
        "import sys\n"
        "from planner_service.server.main import serve\n"
        "from planner_service.settings import load_settings\n"
        "print('the script runs', file=sys.stderr, flush=True)\n"
        "sys.exit(serve(load_settings()))\n"
    )
    planner = serve(sys.executable, str(script))
    request = cases.request(cases.job(ranks=2), cases.documents(2))
    request.job.options.budget_ms = 200
    assert planner.stub.Plan(request).plan.ranks
    planner.process.terminate()
    assert planner.process.wait(PATIENCE_S) == 0
    planner.end()
    assert planner.log.count("the script runs\n") == 1


def test_proxy_in_the_environment_changes_nothing(
    serve: Callable[..., Planner], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as nobody:  # bound, and not listening: whoever used the proxy would fail
        nobody.bind(("127.0.0.1", 0))
        for name in ("http_proxy", "https_proxy", "grpc_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{nobody.getsockname()[1]}")
        planner = serve()
        assert planner.stub.RegisterJob(register()).partition.chunks


def test_unix_socket(serve: Callable[..., Planner], tmp_path: Path) -> None:
    planner = serve(DIP_LISTEN=f"unix://{tmp_path}/planner.sock")
    assert planner.address == f"unix://{tmp_path}/planner.sock"
    assert planner.stub.RegisterJob(register()).partition.chunks


def process_cpu_s(pid: int) -> float:
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_without_compiled_kernels_it_answers_at_once_says_that_it_compiles_and_plans_with_what_it_has(
    serve: Callable[..., Planner], tmp_path: Path
) -> None:
    cache = tmp_path / CACHE.name
    cache.mkdir()
    with (cache / "lock").open("w") as lock:  # the compilation, which takes this lock, is not over before the test is
        fcntl.flock(lock, fcntl.LOCK_EX)
        planner = serve(NUMBA_CACHE_DIR=str(tmp_path))
        with grpc.insecure_channel(planner.health_address) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        assert check.status == health_pb2.HealthCheckResponse.SERVING
        request = cases.request(cases.job(), cases.documents(6))
        plan = planner.stub.Plan(pb.PlanRequest(job=request.job, batch=request.batch), timeout=PATIENCE_S).plan
        assert plan.fallback
        request.partition.CopyFrom(plan.partition)
        assert check_plan(request, plan).faults == ()
        until(lambda: any("compiling the search's kernels" in line for line in planner.log))
        planner.process.terminate()
        assert planner.process.wait(PATIENCE_S) == 0
