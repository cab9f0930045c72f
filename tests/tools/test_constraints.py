"""Shows how constraints.txt comes about: versions kept unless asked, no build named, every requirement pinned."""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"[a-z0-9][a-z0-9-]*==[0-9][0-9a-z.]*")


@pytest.fixture
def constraints(tmp_path, monkeypatch):
    """The tool, writing to a file of the test."""
    spec = importlib.util.spec_from_file_location("constraints", ROOT / "tools" / "constraints.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(tool, "CONSTRAINTS", tmp_path / "constraints.txt")
    return tool


def regenerate(tool, monkeypatch, resolved, *upgrade):
    held = []
    monkeypatch.setattr(tool, "resolve", lambda pins: held.append(pins) or dict(resolved))
    monkeypatch.setattr(sys, "argv", ["constraints.py", *upgrade])
    tool.main()
    return held[0]


def test_the_committed_file_holds_exact_versions_alone():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [pin for pin in pins if not PIN.fullmatch(pin)] == []
    names = [pin.partition("==")[0] for pin in pins]
    assert len(names) == len(set(names))


def test_the_committed_file_pins_whatever_an_extra_asks_for(constraints):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = itertools.chain(project["dependencies"], *project["optional-dependencies"].values())
    names = {constraints.canonical(re.match(r"[A-Za-z0-9._-]+", requirement).group()) for requirement in asked}
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert {name for name in names if f"\n{name}==" not in text} == set()


def test_versions_are_held_except_those_to_upgrade(constraints, monkeypatch):
    constraints.CONSTRAINTS.write_text("# pins\nmypy==1.0\nruff==1.0\ntorch==2.0\n", encoding="utf-8")
    held = regenerate(constraints, monkeypatch, {"mypy": "1.0", "ruff": "2.0", "torch": "2.0"}, "ruff")
    assert held == {"mypy": "1.0", "torch": "2.0"}
    assert constraints.read_pins() == {"mypy": "1.0", "ruff": "2.0", "torch": "2.0"}
    assert regenerate(constraints, monkeypatch, {"torch": "2.1"}, "all") == {}


def test_parts_of_the_cuda_build_stay_where_pip_took_a_cpu_build(constraints, monkeypatch):
    constraints.CONSTRAINTS.write_text("torch==2.0\n\n# CUDA\nnvidia-nccl==2\ntriton==3\n", encoding="utf-8")
    regenerate(constraints, monkeypatch, {"torch": "2.0", "numpy": "2.4"})
    assert constraints.read_pins() == {"torch": "2.0", "numpy": "2.4", "nvidia-nccl": "2", "triton": "3"}


def test_parts_of_another_torch_are_dropped_and_that_is_said(constraints, monkeypatch, capsys):
    constraints.CONSTRAINTS.write_text("torch==2.0\nnvidia-nccl==2\n", encoding="utf-8")
    regenerate(constraints, monkeypatch, {"torch": "2.1"}, "torch")
    assert constraints.read_pins() == {"torch": "2.1"}
    assert "not pinned" in capsys.readouterr().out
