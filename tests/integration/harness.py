"""Real processes for tests of faults: a planner that can be killed, ranks that go step by step, what they came to.

Nothing here sleeps in place of work: ranks are told how far to go, and what they wrote is waited for.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import grpc
import numpy as np
import torch
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from integration import patient_dip, rank_process
from integration.rank_process import LEARNING_RATE, MODEL, Run, make_batch
from pipelines.models import Reference, Trace
from waiting import PATIENCE_S

from benchmarks.planner_process import PlannerProcess
from planner_service import settings as planner_names
from trainer_agent import settings
from trainer_agent.loader import DEFAULT_LOOK_AHEAD

if TYPE_CHECKING:
    from collections.abc import Sequence

# How long ranks wait for schedules where plans that are late on a busy machine are no matter of the test.
PATIENT = {settings.SCHEDULE_WAIT_MS: "20000"}
# The longest iteration of the training that is played, for machines that are very busy, and how often its end is looked
# for. Planning takes a fraction of a second.
ITERATION_S, POLL_S = 20.0, 0.01
TOLERANCE = 1e-9
NEVER_MS = 600_000
# A solver that is slow, or stopped by a test, is not killed for it, and no batch is given to another planner because
# this one stood still: plans are late.
PATIENT_PLANNER = dict.fromkeys((planner_names.SOLVE_GRACE_MS, planner_names.LEASE_MS), str(NEVER_MS))
PLANNED_AHEAD = DEFAULT_LOOK_AHEAD + 1
"""So many iterations beyond the last that was run are handed over, and may have plans whatever happens to planners."""
LATE = ("no schedule within ", "no schedule yet")
"""How reasons begin that a plan came too late, as one may on a busy machine."""


def patient_process(settings: dict[str, str]) -> PlannerProcess:
    """Return a planner, not yet started, that loses nothing because this machine is busy: no solver, and no Redis."""
    return PlannerProcess(PATIENT_PLANNER | patient_dip.FOUND | settings, module=patient_dip.MODULE)


class Planner:
    """``dip serve`` on a UNIX socket, killed and started again as a test likes.

    Parameters
    ----------
    directory
        For its socket and its log.
    settings
        Further settings by their names in the environment.
    """

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self._settings = PATIENT_PLANNER | patient_dip.FOUND | (settings or {})
        self.endpoint = f"unix://{directory}/planner.sock"
        self._log = directory / "planner.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        arguments = ["serve", "--listen", self.endpoint, "--health-listen", "127.0.0.1:0"]
        arguments += ["--metrics-listen", "127.0.0.1:0", "--search-workers", "1"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", patient_dip.MODULE, *arguments],
                env=os.environ | self._settings,
                stdout=log,
                stderr=log,
            )
        with self._channel() as channel:
            pb_grpc.PlannerServiceStub(channel).ListJobs(pb.ListJobsRequest(), timeout=PATIENCE_S, wait_for_ready=True)
        return self

    def job(self, job_id: str) -> pb.GetJobResponse:
        """Ask what it knows of a job."""
        with self._channel() as channel:
            return pb_grpc.PlannerServiceStub(channel).GetJob(pb.GetJobRequest(job_id=job_id), timeout=PATIENCE_S)

    def wait_for_plan(self, job_id: str, iteration: int, *, limit_s: float) -> None:
        """Wait until it has planned an iteration, or knows why not, at most so long."""
        deadline = time.monotonic() + limit_s
        request = pb.GetPlanRequest(job_id=job_id, iteration=iteration)
        with self._channel() as channel:
            stub = pb_grpc.PlannerServiceStub(channel)
            while time.monotonic() < deadline:
                try:
                    stub.GetPlan(request, timeout=limit_s)
                except grpc.RpcError as error:  # away, not told of the job, or not ready: then it takes what it takes
                    if "has no plan" in (error.details() or ""):
                        return
                    time.sleep(POLL_S)
                else:
                    return

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; a killed one is waited for."""
        assert self._process is not None
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait(PATIENCE_S)

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _channel(self) -> grpc.Channel:
        return grpc.insecure_channel(self.endpoint, options=[("grpc.enable_http_proxy", 0)])


class Rank:
    """One process of a training run and what it says.

    Forked from a server that has torch loaded and nothing begun: a process of its own, without seconds of imports.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([rank_process.__name__])
        self._connection, theirs = context.Pipe()
        self.process = context.Process(target=rank_process.main, args=(run, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def next(self, limit_s: float = PATIENCE_S) -> dict[str, Any]:
        """Wait for what it says next; an end, or silence, fails the test with the rank's log."""
        try:
            assert self._connection.poll(limit_s), f"rank {self.run.rank} says nothing:\n{self.log()}"
            said: dict[str, Any] = self._connection.recv()
        except EOFError:
            raise AssertionError(f"rank {self.run.rank} ended:\n{self.log()}") from None
        return said

    def go_until(self, iteration: int | None) -> None:
        """Tell it to stop before an iteration; None: to end where it is."""
        self._connection.send(iteration)

    def log(self) -> str:
        """Return what it wrote for people."""
        return Path(self.run.log).read_text()

    def wait(self) -> int | None:
        """Wait for its end; return its exit code."""
        self.process.join(PATIENCE_S)
        return self.process.exitcode

    def close(self) -> None:
        """End it, whatever state it is in."""
        self.process.kill()
        self.process.join(PATIENCE_S)
        self._connection.close()


class Ranks:
    """A training run of a few ranks, moved on step by step.

    Parameters
    ----------
    directory
        For logs, and where ranks meet; one for each run.
    endpoints
        Each rank's ``DIP_PLANNER_ENDPOINT``; empty: unset.
    variables
        Further settings from the environment.
    faults
        By rank: what happens to it, and at which iteration; see `rank_process.Run`.
    """

    def __init__(
        self,
        directory: Path,
        endpoints: Sequence[str],
        *,
        first_iteration: int = 0,
        seed: int = 0,
        variables: dict[str, str] | None = None,
        faults: dict[int, tuple[str, int]] | None = None,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.first_iteration = first_iteration
        self.seed = seed
        self._iteration = first_iteration
        self.fallbacks: list[bool] = []
        self.reasons: list[list[str]] = []
        self.waited_us: list[int] = []
        self.times: list[float] = []
        self._ranks: list[Rank] = []
        for rank, endpoint in enumerate(endpoints):
            fault, at = (faults or {}).get(rank, ("", -1))
            own = {settings.PLANNER_ENDPOINT: endpoint}
            own |= dict.fromkeys((settings.STEP_TIMEOUT_S, settings.CONNECT_WAIT_S), str(PATIENCE_S))
            run = Run(
                rank=rank,
                ranks=len(endpoints),
                store=str(directory / "store"),
                log=str(directory / f"rank{rank}.log"),
                environment=own | (variables or {}),
                first_iteration=first_iteration,
                seed=seed,
                fault=fault,
                fault_iteration=at,
            )
            self._ranks.append(Rank(run))

    def __getitem__(self, rank: int) -> Rank:
        return self._ranks[rank]

    def wait_until_ready(self) -> dict[str, Any]:
        """Wait until all have built their chunks; return what the first said about the job."""
        said = [rank.next() for rank in self._ranks]
        assert all(one == said[0] for one in said), said
        return said[0]

    def go(self, iterations: int) -> list[bool]:
        """Run so many iterations at once; return for each whether all ranks ran the fallback, as they must alike."""
        self._iteration += iterations
        for rank in self._ranks:
            rank.go_until(self._iteration)
        for iteration in range(self._iteration - iterations, self._iteration):
            said = [rank.next() for rank in self._ranks]
            assert [one.get("iteration") for one in said] == [iteration] * len(said), said
            assert len({one["fallback"] for one in said}) == 1, said
            self.fallbacks.append(said[0]["fallback"])
            self.reasons.append([one["reason"] for one in said])
            self.waited_us.append(max(one["waited_us"] for one in said))
            self.times.append(max(one["at"] for one in said))
        return self.fallbacks[-iterations:]

    def go_beside(self, planner: Planner, job_id: str, iterations: int) -> list[bool]:
        """Run so many iterations, each as long as a real one: the planner has time to plan the next before it starts.

        Returns
        -------
        list
            For each whether all ranks ran the fallback.
        """
        for _ in range(iterations):
            planner.wait_for_plan(job_id, self._iteration, limit_s=ITERATION_S)
            self.go(1)
        return self.fallbacks[-iterations:]

    def go_until_planned(self, planner: Planner, job_id: str) -> int:
        """Go beside the planner until an iteration runs a plan; return how many fell back before."""
        began, fallen_back = time.monotonic(), 0
        while self.go_beside(planner, job_id, 1)[0]:
            fallen_back += 1
            assert time.monotonic() - began < PATIENCE_S, f"no plan within {PATIENCE_S} s:\n{self._ranks[0].log()}"
        return fallen_back

    def go_planned(self, planner: Planner, job_id: str, iterations: int) -> None:
        """Go beside the planner until so many iterations ran plans; others may only have had theirs too late."""
        ran = 0
        while ran < iterations:
            if not self.go_beside(planner, job_id, 1)[0]:
                ran += 1
            else:
                assert any(reason.startswith(LATE) for reason in self.reasons[-1]), self.reasons[-1]

    def go_until_fallback(self, reason: str) -> None:
        """Go on until the first rank falls back for this reason; before it comes what was planned ahead, or is late."""
        began = time.monotonic()
        while self.go(1)[0] is False or reason not in self.reasons[-1][0]:
            assert time.monotonic() - began < PATIENCE_S, f"no such fallback:\n{self._ranks[0].log()}"

    def start_going(self, iterations: int) -> None:
        """Tell all ranks to run so many iterations, without waiting for them."""
        self._iteration += iterations
        for rank in self._ranks:
            rank.go_until(self._iteration)

    def finish(self) -> list[dict[str, Any]]:
        """Let all ranks end; check what training came to; return what each agent counted."""
        for rank in self._ranks:
            rank.go_until(None)
        said = [rank.next() for rank in self._ranks]
        for rank in self._ranks:
            assert rank.wait() == 0, rank.log()
        check_training([one["trace"] for one in said], self.seed, range(self.first_iteration, self._iteration))
        return [one["stats"] for one in said]

    def close(self) -> None:
        """End all processes."""
        for rank in self._ranks:
            rank.close()


def check_training(traces: Sequence[Trace], seed: int, iterations: range) -> None:
    """Compare losses, gradients and parameters of every iteration with ordinary training in one process."""
    expected = reference(seed, iterations)
    for trace in traces:
        np.testing.assert_allclose(trace.losses, expected.losses, rtol=TOLERANCE)
    for index, wanted in enumerate(expected.gradients):
        found = {name: gradient for trace in traces for name, gradient in trace.gradients[index].items()}
        assert found.keys() == wanted.keys()
        for name, gradient in wanted.items():
            where = f"iteration {iterations[index]}, gradient of {name}"
            # A rank without work for a parameter may leave none where ordinary training has zeros.
            found_one = np.zeros(1) if found[name] is None else found[name]
            wanted_one = np.zeros(1) if gradient is None else gradient
            np.testing.assert_allclose(found_one, wanted_one, rtol=TOLERANCE, atol=1e-12, err_msg=where)
    parameters = {name: parameter for trace in traces for name, parameter in trace.parameters.items()}
    assert parameters.keys() == expected.parameters.keys()
    for name, parameter in expected.parameters.items():
        np.testing.assert_allclose(parameters[name], parameter, rtol=TOLERANCE, atol=1e-12, err_msg=name)


def reference(seed: int, iterations: range) -> Trace:
    """Train in one process, as `rank_process` does."""
    model, trace = Reference(MODEL), Trace()
    named = model.named_parameters()
    optimizer = torch.optim.SGD(named.values(), lr=LEARNING_RATE)
    for iteration in iterations:
        trace.note(model.step([make_batch(seed, iteration)]), named)
        optimizer.step()
        optimizer.zero_grad()
    trace.finish(named)
    return trace
