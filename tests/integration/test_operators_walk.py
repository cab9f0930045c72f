"""Follows docs/operators-walk.md in an empty folder, command by command, and shows that what it promises is seen."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from integration import held_training, patient_dip
from needed import needs, needs_openssl

from benchmarks.held_port import HeldPort

ROOT = Path(__file__).parents[2]
WALK = ROOT / "docs" / "operators-walk.md"
BLOCK = re.compile(r"^```sh ?(?P<how>[a-z]*)\n(?P<commands>.*?)^```$", re.MULTILINE | re.DOTALL)
PORTS = {"50061": "DIP_LISTEN", "50062": "DIP_HEALTH_LISTEN", "9464": "DIP_METRICS_LISTEN"}
TRIES, LIMIT_S = 400, 540
# Batches that trainings may read: before the planner is away, until it is back, and in all. What each iteration adds to
# the record is written when the batch two behind has been read.
BEFORE, AWAY, ITERATIONS = 8, 16, 24
HOLD = f'echo {{}} > "${held_training.HELD_AT}.new" && mv "${held_training.HELD_AT}.new" "${held_training.HELD_AT}"'
UNTIL_HELD = """for job in vlm-red vlm-blue; do
    until [ "$(wc -l < $job.jsonl)" -ge {} ]; do sleep 0.1; done
done"""
BESIDE = {
    "train vlm-red": HOLD.format(BEFORE),
    "start_planner\n": f"{HOLD.format(AWAY)}\n{UNTIL_HELD.format(AWAY - 2)}",
    'wait "$RED"': HOLD.format(ITERATIONS),
}
"""What the test does before blocks that begin so, the last of them where there are several: training goes on as far as
the walk has come, however long that takes."""


def _blocks(held: list[HeldPort]) -> list[tuple[str, str]]:
    """How each block is run, and its commands; on held ports, as another planner may be running on the walk's."""
    text = WALK.read_text(encoding="utf-8")
    free = {written: port.number for written, port in zip(PORTS, held, strict=True)}
    for written, port in free.items():
        text = text.replace(written, str(port))
    listens = "".join(f"{name}=127.0.0.1:{free[port]}\n" for port, name in PORTS.items() if name != "DIP_LISTEN")
    text = text.replace("DIP_ACCESS_FILE=", f"{listens}DIP_ACCESS_FILE=", 1)
    blocks = [(match["how"], match["commands"]) for match in BLOCK.finditer(text)]
    assert len(blocks) == text.count("```sh")
    return blocks


def _script(blocks: list[tuple[str, str]]) -> str:
    """One shell runs all of it. What installs is left out; what comes true after a while is tried until it does."""
    lines = ["set -eu"]
    beside = {_last(blocks, command): done for command, done in BESIDE.items()}
    for number, (how, commands) in enumerate(blocks):
        if how == "install":
            continue
        lines += [beside.get(number, ""), f"echo '--- block {number}'"]
        if how == "eventually":
            lines.append(f"try=0; until {{ {commands.strip()}\n}}; do")
            lines.append(f"try=$((try + 1)); test $try -lt {TRIES}; sleep 0.5; done")
        else:
            lines.append(commands)
    return "\n".join(lines)


def _last(blocks: list[tuple[str, str]], command: str) -> int:
    """Number of the last block with a command in it."""
    return max(number for number, (_, commands) in enumerate(blocks) if command in commands)


def _environment(around: Path) -> dict[str, str]:
    """Variables of the walk: a clone whose training is held, and a ``dip`` that is patient."""
    clone, commands, temporary = around / "clone", around / "bin", around / "tmp"
    for made in (clone / "examples", commands, temporary):
        made.mkdir(parents=True)
    (clone / "examples" / "train_vlm.py").symlink_to(held_training.__file__)
    patient_dip.write_command(commands)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DIP_")}
    path = os.pathsep.join([str(commands), str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    own = {"PATH": path, "DIP": str(clone), "ITERATIONS": str(ITERATIONS)}
    # torchrun leaves a folder of logs among the temporary files.
    return kept | own | {held_training.HELD_AT: str(around / "held"), "TMPDIR": str(temporary)}


def _run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    shell = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env=_environment(folder.parent),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = shell.communicate(timeout=LIMIT_S)
    finally:
        _end(shell)
    return subprocess.CompletedProcess(shell.args, shell.returncode, out, err)


def _end(shell: subprocess.Popen[str]) -> None:
    """Whatever went wrong in the middle, nothing of the walk stays: torchrun ends its ranks where it is asked to."""
    for number, patience_s in ((signal.SIGTERM, 20), (signal.SIGKILL, 20)):
        try:
            os.killpg(shell.pid, number)
        except ProcessLookupError:
            return
        for _ in range(10 * patience_s):
            shell.poll()
            if not _group_lives(shell.pid):
                return
            time.sleep(0.1)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.timeout(LIMIT_S + 60)
@needs("curl")
@needs_openssl
def test_every_step_of_the_walk_works(tmp_path: Path) -> None:
    held = [HeldPort() for _ in PORTS]
    blocks = _blocks(held)
    folder = tmp_path / "walk"
    folder.mkdir()
    ran = _run(_script(blocks), folder)
    for port in held:
        port.release()
    logs = "".join(f"\n--- {path.name}\n{path.read_text()[-4000:]}" for path in sorted(folder.glob("*.log")))
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:] + logs
    said = dict(re.findall(r"--- block (\d+)\n(.*?)(?=--- block|\Z)", ran.stdout, re.DOTALL))

    def of(command: str) -> str:
        (number,) = [n for n, (_, commands) in enumerate(blocks) if command in commands]
        return said[str(number)]

    assert "vlm-red" in of("dip jobs\ndip status vlm-red")
    assert "exit code 6" in of("DIP_TOKEN_FILE= dip jobs")
    assert "fixed fallback" in of('--iteration "$iteration"')
    assert "iterations ran a plan made for their batch" in of('wait "$RED"')
