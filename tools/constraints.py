"""Write constraints.txt: one exact version of every package that a fresh machine installs.

`make constraints` keeps the versions that stand there and pins what is new; `make constraints UPGRADE="ruff mypy"`
takes the newest of the packages named, `UPGRADE=all` of every one. pip resolves, from pyproject.toml and its settings.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
HEADER = """\
# One version of every package that the set-up installs, all extras together. `make constraints` writes this file.
# ortools 9.15 holds protobuf below 6.34, and with it grpcio-tools, -health-checking and -reflection at 1.81.
"""
CUDA_HEADER = """
# Parts of torch's default build for Linux; a CPU build needs none of them.
"""
CUDA_PREFIXES = ("nvidia-", "cuda-", "triton")


def canonical(name: str) -> str:
    """Return a distribution's name as the packaging standards compare it."""
    return name.lower().replace("_", "-").replace(".", "-")


def read_pins() -> dict[str, str]:
    """Return the committed version of each package, none where there is no file yet."""
    if not CONSTRAINTS.exists():
        return {}
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


def resolve(held: dict[str, str]) -> dict[str, str]:
    """Return what pip would install with all extras into an empty environment, keeping the versions `held`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = ",".join(project["optional-dependencies"])
    with tempfile.TemporaryDirectory() as folder:
        constraints, report = Path(folder, "held.txt"), Path(folder, "report.json")
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in held.items()), encoding="utf-8")
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--constraint", str(constraints), "--report", str(report), f"{ROOT}[{extras}]"]
        subprocess.run(command, check=True)
        installs = json.loads(report.read_text(encoding="utf-8"))["install"]
    found = ((item["metadata"]["name"], item["metadata"]["version"]) for item in installs)
    # The local part of a version ("+cpu") names a build, which is the user's choice.
    return {canonical(name): version.partition("+")[0] for name, version in found if name != project["name"]}


def render(pins: dict[str, str]) -> str:
    """Return the text of constraints.txt."""
    cuda = {name for name in pins if name.startswith(CUDA_PREFIXES)}
    lines = [f"{name}=={pins[name]}\n" for name in sorted(set(pins) - cuda)]
    cuda_lines = [f"{name}=={pins[name]}\n" for name in sorted(cuda)]
    return "".join([HEADER, *lines, *([CUDA_HEADER] if cuda else []), *cuda_lines])


def main() -> None:
    """Resolve and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("upgrade", nargs="*", help="packages to take the newest version of, or: all")
    upgrade = {canonical(name) for name in parser.parse_args().upgrade}
    old = read_pins()
    new = resolve({} if "all" in upgrade else {name: old[name] for name in old if name not in upgrade})
    if new["torch"] == old.get("torch"):
        # pip took a CPU build here: what the default build of the same version brings has not changed.
        new = {name: version for name, version in old.items() if name.startswith(CUDA_PREFIXES)} | new
    elif not any(name.startswith(CUDA_PREFIXES) for name in new):
        print("torch is another one and pip took its CPU build: the parts of the default build are not pinned.")
    CONSTRAINTS.write_text(render(new), encoding="utf-8")
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            print(f"{name}: {old.get(name, 'none')} -> {new.get(name, 'none')}")


if __name__ == "__main__":
    main()
