"""Shows that the recipes without Kubernetes start a planner, train with it, and leave nothing behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from integration import patient_dip
from needed import needs, needs_openssl
from waiting import PATIENCE_S, until

from planner_service.settings import PREFIX, Settings

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KEEP = DEPLOY / "torchrun" / "keep_planner.sh"
TRAIN = DEPLOY / "torchrun" / "train.sh"
SBATCH = DEPLOY / "slurm" / "train.sbatch"
UNIT = DEPLOY / "torchrun" / "dip-planner.service"
NETWORK = DEPLOY / "torchrun" / "dip-planner.network.conf"
BIN = Path(sys.executable).parent


@pytest.fixture
def commands(tmp_path: Path) -> Callable[..., Path]:
    """Return what puts a command of a test's own before others of its name."""
    (tmp_path / "bin").mkdir(exist_ok=True)

    def put(name: str, script: str) -> Path:
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return put


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    """Variables for a recipe: commands of the test, then ours; a home and a folder for temporary files of its own."""
    for name in ("home", "tmp", "bin"):
        (tmp_path / name).mkdir(exist_ok=True)
    if not (tmp_path / "bin" / "dip").exists():
        patient_dip.write_command(tmp_path / "bin")
    clean = {name: value for name, value in os.environ.items() if not name.startswith((PREFIX, "SLURM_"))}
    return clean | {
        "PATH": os.pathsep.join([str(tmp_path / "bin"), str(BIN), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
        "DIP_METRICS_LISTEN": "off",
        "DIP_SEARCH_WORKERS": "1",
        **more,
    }


def begin(command: list[str], variables: dict[str, str], tmp_path: Path) -> subprocess.Popen[str]:
    """Start a recipe in a group of its own, from a folder of the test."""
    return subprocess.Popen(
        command,
        env=variables,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def end(process: subprocess.Popen[str]) -> str:
    """Wait for its end, and of all that it started, and return what it wrote; if that fails, they are killed."""
    try:
        said = process.communicate(timeout=PATIENCE_S)[0]
        until(lambda: is_empty(process.pid), told=lambda: f"what it started is still there: {said}")
        return said
    finally:
        with_group_killed(process.pid)
        process.wait()


def with_group_killed(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def left_behind(said: str) -> bool:
    """Whether the folder is still there in which a planner said that its socket is."""
    listens = re.search(r"listen=unix://(\S+)/planner\.sock", said)
    assert listens, said
    return Path(listens[1]).exists()


def is_empty(group: int) -> bool:
    """Whether no process is left that the recipe started."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_planner_that_fails_is_started_again_and_told_to_stop(tmp_path: Path, commands: Callable[..., Path]) -> None:
    commands(
        "dip",
        f"""echo "$@" >> {tmp_path}/starts
        [ "$(wc -l < {tmp_path}/starts)" -eq 1 ] && exit 1
        trap 'echo drained >> {tmp_path}/starts; exit 0' TERM
        touch {tmp_path}/serving
        while :; do sleep 0.05; done""",
    )
    process = begin(["sh", str(KEEP), "--listen", "127.0.0.1:1"], environment(tmp_path), tmp_path)
    until((tmp_path / "serving").exists)
    process.send_signal(signal.SIGTERM)
    said = end(process)
    assert process.returncode == 0
    assert "ended with exit code 1; it is started again in 1 s" in said
    assert (tmp_path / "starts").read_text().splitlines() == ["serve --listen 127.0.0.1:1"] * 2 + ["drained"]


def test_settings_that_cannot_be_are_not_tried_again(tmp_path: Path) -> None:
    process = begin(["sh", str(KEEP)], environment(tmp_path, DIP_SEARCH_WORKERS="many"), tmp_path)
    said = end(process)
    assert process.returncode == 2
    assert said.count("DIP_SEARCH_WORKERS") == 1


# What stands for a training: each rank says who it is and asks the planner for its jobs, which fails without one.
# Files, as lines of processes that share an output may fall into each other.
RANK = """
import os, pathlib
pathlib.Path("rank" + os.environ["RANK"]).write_text(os.environ["DIP_JOB_ID"] + " of " + os.environ["WORLD_SIZE"])
os.execvp("dip", ["dip", "jobs"])
"""


def test_torchrun_starts_ranks_with_a_planner_beside_them(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RANK)
    variables = environment(tmp_path, NPROC_PER_NODE="2", MASTER_PORT="0", RUN_ID="recipe")
    process = begin(["sh", str(TRAIN), "train.py"], variables, tmp_path)
    said = end(process)
    assert process.returncode == 0, said
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["recipe of 2"] * 2
    assert " stopped " in said, "the planner is told to stop once the training has ended"
    assert not left_behind(said)


def test_a_long_folder_for_temporary_files_leaves_room_for_the_socket(
    tmp_path: Path, commands: Callable[..., Path]
) -> None:
    commands("torchrun", "exec dip jobs")
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        long = Path(short) / ("ü" * 40)  # few enough characters, but it is bytes that count
        long.mkdir()
        process = begin(["sh", str(TRAIN), "train.py"], environment(tmp_path, TMPDIR=str(long)), tmp_path)
        said = end(process)
    assert process.returncode == 0, said
    assert not left_behind(said)


def test_a_signal_ends_training_and_planner(tmp_path: Path, commands: Callable[..., Path]) -> None:
    commands(
        "torchrun",
        f"trap 'echo told >> {tmp_path}/end; exit 3' TERM; touch {tmp_path}/trains; while :; do sleep 0.05; done",
    )
    process = begin(["sh", str(TRAIN), "train.py"], environment(tmp_path), tmp_path)
    until((tmp_path / "trains").exists)
    process.send_signal(signal.SIGTERM)
    said = end(process)
    assert process.returncode == 3, said
    assert (tmp_path / "end").read_text() == "told\n"
    assert " stopped " in said
    assert not left_behind(said)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"NNODES": "2"}, "MASTER_ADDR"),
        ({"NNODES": "2", "MASTER_ADDR": "localhost"}, "DIP_SECRETS"),
    ],
)
def test_what_is_missing_is_said_before_anything_starts(variables: dict[str, str], said: str, tmp_path: Path) -> None:
    process = begin(["sh", str(TRAIN), "train.py"], environment(tmp_path, **variables), tmp_path)
    assert said in end(process)
    assert process.returncode == 2


# Steps by their number are lines of two files: what they run, and their process.
SRUN = """for word; do case $word in --*) shift;; *) break;; esac; done
echo "$@" >> "$STEPS"
echo $$ >> "$STEPS.pids"
exec "$@"
"""
SCANCEL = """[ "$1" = --signal=TERM ] && kill -TERM $(sed -n "$((${2#*.} + 1))p" "$STEPS.pids")"""
# A rank that asks the planner a question: with its certificate's authority, and with its token.
ASK = 'echo "torchrun $*"; exec dip jobs'


@needs_openssl
def test_slurm_on_two_nodes_has_a_certificate_and_a_token_of_the_job(
    tmp_path: Path, commands: Callable[..., Path]
) -> None:
    """With Slurm's commands played: steps run here. That Slurm itself runs it, its README tells."""
    # More hosts than a pipe holds: whoever reads the first alone ends the command that tells them.
    commands("scontrol", "echo localhost; seq --format node%g 20000")
    commands("scancel", SCANCEL)
    commands("srun", SRUN)
    commands("torchrun", ASK)
    slurm = {
        "SLURM_JOB_ID": str(1_000 + os.getpid() % 2_000),
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_NODELIST": "localhost,elsewhere",
        "DIP_DEPLOY": str(DEPLOY),
        "STEPS": str(tmp_path / "steps"),
    }
    process = begin(["bash", str(SBATCH), "train.py", "--epochs", "3"], environment(tmp_path, **slurm), tmp_path)
    said = end(process)
    assert process.returncode == 0, said
    job = f"slurm-{slurm['SLURM_JOB_ID']}-0"
    assert re.search(rf"torchrun --nnodes=2 --nproc-per-node=1 --rdzv-id={job} .* train.py --epochs 3", said)
    assert " serving listen=0.0.0.0:" in said
    assert "refused" not in said, said
    planner, training = (tmp_path / "steps").read_text().splitlines()
    assert planner.startswith("env DIP_HEALTH_LISTEN=")
    assert "DIP_ACCESS_FILE=" in planner
    assert training.startswith("torchrun ")
    # Nothing secret is left.
    assert list((tmp_path / "home" / ".dip-planner").iterdir()) == []


def test_slurm_on_one_node_needs_no_secrets_and_ends_on_a_signal(tmp_path: Path, commands: Callable[..., Path]) -> None:
    commands("scontrol", "echo localhost")
    commands("scancel", SCANCEL)
    commands("srun", SRUN)
    commands("torchrun", f"trap 'exit 5' TERM; dip jobs && touch {tmp_path}/trains; while :; do sleep 0.05; done")
    slurm = {
        "SLURM_JOB_ID": str(1_000 + os.getpid() % 2_000),
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_JOB_NODELIST": "localhost",
        "DIP_DEPLOY": str(DEPLOY),
        "STEPS": str(tmp_path / "steps"),
    }
    process = begin(["bash", str(SBATCH), "train.py"], environment(tmp_path, **slurm), tmp_path)
    until((tmp_path / "trains").exists)
    process.send_signal(signal.SIGTERM)
    said = end(process)
    assert process.returncode == 5, said
    assert " serving listen=unix://" in said
    assert " stopped " in said
    assert list((tmp_path / "home" / ".dip-planner").iterdir()) == []
    assert not left_behind(said)


@needs("shellcheck")
def test_scripts_pass_shellcheck() -> None:
    scripts = sorted(map(str, [*DEPLOY.rglob("*.sh"), SBATCH]))
    done = subprocess.run(["shellcheck", "--severity=warning", *scripts], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@needs("systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/dip-planner/bin/dip", str(BIN / "dip")))
    (tmp_path / f"{UNIT.name}.d").mkdir()
    shutil.copy(NETWORK, tmp_path / f"{UNIT.name}.d" / "network.conf")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def unit_of(path: Path) -> dict[str, list[str]]:
    """Return what a unit's service says, by name."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_the_unit_waits_for_the_planner_to_drain() -> None:
    (stop_s,) = unit_of(UNIT)["TimeoutStopSec"]
    assert int(stop_s) * 1000 > 2 * Settings().drain_ms


@pytest.mark.parametrize("path", [UNIT, NETWORK])
def test_the_unit_names_settings_that_there_are(path: Path) -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields} | {"XDG_CACHE_HOME"}
    named = {value.partition("=")[0] for value in unit_of(path)["Environment"]}
    assert named <= known


def test_credentials_are_those_that_settings_name() -> None:
    network = unit_of(NETWORK)
    loaded = {value.partition(":")[0] for value in network["LoadCredential"]}
    named = {value.partition("%d/")[2] for value in network["Environment"] if "%d/" in value}
    assert loaded == named
