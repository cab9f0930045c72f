"""The demo that `make demo` runs: planner and training on this machine, planned schedules beside 1F1B, and a picture.

Everything that it starts ends with it: at its end, on Ctrl-C, on SIGTERM and on errors.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING

import grpc
from dip.addresses import MOST_PATH_BYTES
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc

from examples.vlm.launch import NEEDED, at_least, require_packages, usable_cores
from examples.vlm.summary import Records, summary

if TYPE_CHECKING:
    from types import FrameType

RANKS = 2
JOB = "demo"
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PLANNER_START_S, END_S, CALL_S = 60.0, 40.0, 20.0
KEPT_ITERATIONS = 24  # of those that the planner still has, the picture shows a typical one


class DemoError(Exception):
    """The demo cannot go on; the message says why and what to do."""


def main() -> int:
    """Run the demo; 0 where it ran to its end."""
    options = parse_arguments()
    require_packages(NEEDED | {"matplotlib": "matplotlib"})
    for number in ENDING_SIGNALS:
        signal.signal(number, _interrupt)
    started = time.monotonic()
    try:
        run(options)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; everything that it started has ended", file=sys.stderr)
        return 130
    print(f"\n{time.monotonic() - started:.0f} s in all; everything that was started has ended")
    return 0


def run(options: argparse.Namespace) -> None:
    """Start the planner, train, and show what came of it."""
    results: Path = options.folder
    try:
        results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DemoError(f"cannot make the folder {results}: {error.strerror}; choose another with --folder") from error
    if usable_cores() < RANKS:
        print(
            f"this machine lets {usable_cores()} core be used, the demo trains on {RANKS} ranks: see the warning below"
        )
    records, planner_log = results / "iterations.jsonl", results / "planner.log"
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dip-demo-", dir=folder_for_sockets()))
        endpoint = f"unix://{folder}/planner.sock"
        with planner_log.open("w", encoding="utf-8") as log:
            planner = stack.enter_context(Child("the planner", planner_command(endpoint, folder), log=log))
        wait_for_planner(planner, endpoint, planner_log)
        print(f"the planner serves at {endpoint} (its log: {planner_log})")
        print(f"training on {RANKS} ranks with one thread each, for {options.seconds:g} s at most", flush=True)
        environment = os.environ | {"DIP_PLANNER_ENDPOINT": endpoint, "DIP_JOB_ID": JOB, "OMP_NUM_THREADS": "1"}
        training = stack.enter_context(Child("the training", training_command(options, records), env=environment))
        training.wait_for_success()
        found = Records.read(records)
        answer = executed_plan(endpoint, found.typical_iterations(KEPT_ITERATIONS))
    print()
    for line in summary(found):
        print(line)
    print()
    write_results(answer, results)
    print(f"all iterations of both runs: {records}")


def folder_for_sockets() -> str:
    """Where temporary files are made, unless its path leaves no room for a socket's."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(f"{usual}/dip-demo-12345678/planner.sock")) <= MOST_PATH_BYTES else "/tmp"


def planner_command(endpoint: str, folder: str) -> list[str]:
    """``dip serve`` on a socket that nobody else can have taken."""
    health = f"unix://{folder}/health.sock"
    addresses = ["--listen", endpoint, "--health-listen", health, "--metrics-listen", "off"]
    return [sys.executable, "-m", "planner_service.cli", "serve", *addresses]


def training_command(options: argparse.Namespace, records: Path) -> list[str]:
    """Torchrun with the two runs."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    limits = ["--seconds", str(options.seconds), "--iterations", str(options.iterations), "--block", str(options.block)]
    limits += ["--microbatches", str(options.microbatches)]
    return [*torchrun, "-m", "examples.compare_schedules", *limits, "--record", str(records)]


def wait_for_planner(planner: Child, endpoint: str, log: Path) -> None:
    """Wait until the planner answers.

    Raises
    ------
    DemoError
        It ended, or does not answer.
    """
    with grpc.insecure_channel(endpoint) as channel:
        ready = grpc.channel_ready_future(channel)
        deadline = time.monotonic() + PLANNER_START_S
        while time.monotonic() < deadline:
            planner.check_runs(f"see {log}")
            try:
                ready.result(timeout=0.5)
            except grpc.FutureTimeoutError:
                continue
            return
    raise DemoError(f"the planner did not answer within {PLANNER_START_S:g} s; see {log}")


def executed_plan(endpoint: str, iterations: list[int]) -> pb.GetPlanResponse:
    """Fetch the first of some iterations whose plan all ranks ran and reported.

    Raises
    ------
    DemoError
        There is none.
    """
    with grpc.insecure_channel(endpoint) as channel:
        planner = pb_grpc.PlannerServiceStub(channel)
        for iteration in iterations:
            try:
                answer = planner.GetPlan(pb.GetPlanRequest(job_id=JOB, iteration=iteration), timeout=CALL_S)
            except grpc.RpcError as error:
                if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.OUT_OF_RANGE):
                    continue
                raise DemoError(f"the planner does not hand out iteration {iteration}: {error.details()}") from error
            if {report.rank for report in answer.reports} == set(range(RANKS)):
                return answer
    raise DemoError("no iteration ran a plan that all ranks reported: there is nothing to draw")


def write_results(answer: pb.GetPlanResponse, folder: Path) -> None:
    """Write one iteration's request, plan and reports, its trace and its picture."""
    from planner_service.commands.export import write_picture, write_trace
    from planner_service.commands.files import message_text, write_text

    plan, reports = answer.plan, list(answer.reports)
    title = f"iteration {reports[0].iteration} of the demo"
    for name, message in (("request.json", answer.request), ("plan.json", plan), ("executed.json", answer)):
        write_text(str(folder / name), message_text(message))
    write_trace(str(folder / "trace.json"), plan, reports)
    write_picture(str(folder / "plan.png"), plan, reports, title=title)
    print(f"{title}, planned and measured:")
    print(f"  picture   {folder / 'plan.png'}")
    print(f"  trace     {folder / 'trace.json'}   (open it at https://ui.perfetto.dev)")
    print(f"  messages  {folder / 'request.json'}, plan.json, executed.json   (for dip check and dip export)")


class Child:
    """A process that ends with the ``with`` block that it is started in.

    Parameters
    ----------
    name
        What messages call it.
    command
        Its command line.
    log
        Where its output goes; to the demo's own where not given.
    env
        Its environment; the demo's own where not given.
    """

    def __init__(
        self, name: str, command: list[str], *, log: IO[str] | None = None, env: dict[str, str] | None = None
    ) -> None:
        self._name = name
        # A session of its own: Ctrl-C reaches the demo alone, which ends its children in order.
        self._process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT if log else None, env=env, start_new_session=True
        )

    def check_runs(self, hint: str) -> None:
        """Raise `DemoError` where it has ended."""
        code = self._process.poll()
        if code is not None:
            raise DemoError(f"{self._name} ended with exit code {code}; {hint}")

    def wait_for_success(self) -> None:
        """Wait for its end; raise `DemoError` where it failed."""
        code = self._process.wait()
        if code:
            raise DemoError(f"{self._name} failed with exit code {code}; its messages are above")

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *reason: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()  # torchrun and the planner end their own children then
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                print(f"demo: {self._name} does not end within {END_S:g} s: killed", file=sys.stderr)
                self._process.kill()
                self._process.wait()


def _interrupt(number: int, frame: FrameType | None) -> None:
    for ending in ENDING_SIGNALS:  # once is enough: from here on what was started is being ended
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=180, help="training time at most (%(default)s)")
    parser.add_argument("--iterations", type=at_least(1), default=120, help="batches at most (%(default)s)")
    parser.add_argument("--block", type=at_least(1), default=4, help="batches of a block (%(default)s)")
    parser.add_argument("--microbatches", type=at_least(1), default=8, help="microbatches of a batch (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("runs/demo"), help="where results go (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
