"""Starts what an image holds, from its file system alone, and checks that it works; `check_containers.sh` calls it.

    python tools/check_container.py planner|trainer ROOT CONFIG

ROOT is the image's file system, CONFIG what `buildah inspect` says of it. Everything runs as an engine would run it:
see `in_root.sh`. Needs root.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc

from planner_service.check import check_plan
from planner_service.check.workload import workload_request

if TYPE_CHECKING:
    from collections.abc import Iterator

TOOLS = Path(__file__).parent
ELSEWHERE = TOOLS.parent / "tests" / "planner_service" / "kernels_elsewhere.py"
PATIENCE_S = 120
DRAIN_S = 30
SOLVERS = {"torch", "pytest", "mypy"}, {"ortools", "numba", "redis", "pytest", "mypy"}
"""What the planner's image, and the trainer's, must not hold."""

OLD_CPU = "processor\t: 0\nflags\t\t: fpu sse sse2 pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm\n"
"""A CPU of 2009, as Linux would tell of it."""

PLAN = "dip workload vlm-s --out /tmp/request.json && dip plan /tmp/request.json -o /tmp/plan.json"
PLAN += " && dip check /tmp/request.json /tmp/plan.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """A file system, and how its image says that it is run."""

    root: Path
    config: dict[str, Any]

    def command(self, *arguments: str, user: str = "", cpuinfo: str = "-", **environment: str) -> list[str]:
        """What runs a command of the image; as another user, on another CPU, with more settings."""
        settings = [*self.config["Env"], *(f"{name}={value}" for name, value in environment.items())]
        inside = [self.root, user or self.config["User"], self.config["WorkingDir"], cpuinfo, *settings, *arguments]
        return ["unshare", "--mount", "sh", str(TOOLS / "in_root.sh"), *map(str, inside)]

    def run(self, *arguments: str, **how: str) -> str:
        """Run a command to its end, and return what it printed."""
        ran = subprocess.run(self.command(*arguments, **how), capture_output=True, text=True, check=False)
        if ran.returncode:
            fail(f"{' '.join(arguments)} exited {ran.returncode}:\n{ran.stdout}{ran.stderr}")
        return ran.stdout

    def started(self) -> list[str]:
        """What the image runs when nothing is said."""
        return [*(self.config.get("Entrypoint") or ()), *(self.config.get("Cmd") or ())]


def fail(reason: str) -> None:
    """Say what is wrong, and stop."""
    sys.exit(f"check of the container failed: {reason}")


def require(held: bool, what: str) -> None:
    """Say one thing that was checked."""
    if not held:
        fail(f"not so: {what}")
    print(f"  {what}", flush=True)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def serving(image: Image, log: Path, **how: str) -> Iterator[tuple[subprocess.Popen[bytes], str, str]]:
    """Run the image as it says, and wait until it serves; its process, address and health address."""
    ports = [free_port() for _ in range(3)]
    listen, health, metrics = (f"127.0.0.1:{port}" for port in ports)
    settings = {"DIP_LISTEN": listen, "DIP_HEALTH_LISTEN": health, "DIP_METRICS_LISTEN": metrics, **how}
    with log.open("wb") as out:
        process = subprocess.Popen(image.command(*image.started(), **settings), stdout=out, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + PATIENCE_S
        while subprocess.run(
            [TOOLS.parent / ".venv/bin/dip", "health", health], capture_output=True, check=False
        ).returncode:
            if process.poll() is not None or time.monotonic() > until:
                fail(f"the planner did not start:\n{log.read_text()}")
        yield process, listen, health
    finally:
        process.kill()
        process.wait()


def check_service(image: Image, log: Path, **how: str) -> None:
    """A planner that answers health and plans, and stops when it is told to."""
    with serving(image, log, **how) as (process, listen, health):
        said = image.run("dip", "health", DIP_HEALTH_LISTEN=health)
        require("SERVING" in said, "dip health inside of it: SERVING")
        request = workload_request("vlm-s", 8, 0, "web")
        request.job.options.budget_ms = 1_000
        with grpc.insecure_channel(listen, options=[("grpc.enable_http_proxy", 0)]) as channel:
            stub = planner_pb2_grpc.PlannerServiceStub(channel)
            plan = stub.Plan(pb.PlanRequest(job=request.job, batch=request.batch), timeout=PATIENCE_S).plan
        request.partition.CopyFrom(plan.partition)
        require(not check_plan(request, plan).faults, "a plan over gRPC, from outside, without faults")
        require(not plan.fallback, "that plan was searched: kernels are there")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        require(process.wait(DRAIN_S) == 0, f"SIGTERM ends it with 0, after {time.monotonic() - began:.1f} s")
    require("compiling" not in log.read_text(), "nothing was compiled")


def check_planner(image: Image, scratch: Path) -> None:
    """All that the planner's image promises."""
    print(image.run("dip", "--version").strip(), "on", image.run("python", "--version").strip())
    log = scratch / "planner.log"
    check_service(image, log)
    image.run("sh", "-c", PLAN)
    print("  dip workload, plan and check inside of it", flush=True)
    inside = image.run("python", "-c", ELSEWHERE.read_text(), "skylake")
    found = json.loads(inside)
    require(
        found["were_compiled"] and not found["compiled"], f"no kernel compiled on another CPU name: {found['folder']}"
    )
    print("as another user, on a CPU without AVX:")
    old_cpu = scratch / "cpuinfo"
    old_cpu.write_text(OLD_CPU, encoding="utf-8")
    older = json.loads(image.run("python", "-c", ELSEWHERE.read_text(), "nehalem", cpuinfo=str(old_cpu)))
    require(older["were_compiled"] and not older["compiled"], "no kernel compiled there")
    require(older["digests"] == found["digests"], "the same plans")
    check_service(image, log, user="4321:4321", cpuinfo=str(old_cpu))


def check_trainer(image: Image, _scratch: Path) -> None:
    """All that the trainer's image promises."""
    print(image.run("python", "-c", "import torch; print('torch', torch.__version__)").strip())
    said = image.run(*image.started(), "--iterations", "4", DIP_CONNECT_WAIT_S="1")
    require("loss" in said, "the example trains on two ranks, without a planner")


def sizes(root: Path) -> None:
    """Say how large the file system is, and what of it."""
    packages = [root, *root.glob("opt/dip/lib/python3*/site-packages/*")]
    # Each path on its own: du counts what lies below an earlier one only once.
    listed = [
        subprocess.run(["du", "-xsm", path], capture_output=True, text=True, check=True).stdout for path in packages
    ]
    rows = sorted(
        ((int(size), Path(path.strip()).name) for size, _, path in (row.partition("\t") for row in listed)),
        reverse=True,
    )
    print(f"file system: {rows[0][0]} MiB, of which {', '.join(f'{name} {size}' for size, name in rows[1:10])}")


def main() -> int:
    """Check one image."""
    name, root, config = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    image = Image(root=root, config=json.loads(config.read_text(encoding="utf-8"))["OCIv1"]["config"])
    print(f"Starting dip-{name} from its file system: {' '.join(image.started())}")
    sizes(root)
    user = image.config["User"]
    require(user.split(":")[0].isdigit() and user.split(":")[0] != "0", f"it runs as user {user}")
    unwanted = SOLVERS[name == "trainer"]
    packages = {path.name for path in root.glob("opt/dip/lib/python3*/site-packages/*")}
    require(not unwanted & packages, f"it holds none of {', '.join(sorted(unwanted))}")
    written = subprocess.run(image.command("touch", "/opt/dip/written"), capture_output=True, text=True, check=False)
    require("Read-only file system" in written.stderr, "nothing can be written to it")
    with tempfile.TemporaryDirectory() as scratch:
        {"planner": check_planner, "trainer": check_trainer}[name](image, Path(scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
