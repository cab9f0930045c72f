"""Shows that the page of settings is what the code reads: nothing stale, nothing unread, and no other name anywhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE_S

from planner_service.settings import PREFIX, Settings
from trainer_agent.settings import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "settings.md"
NAME = re.compile(r"\bDIP_[A-Z][A-Z0-9_]*[A-Z0-9]\b")
OF_OTHERS = re.compile(
    r"DIP_(ACCEPTANCE|SHARED|REDIS_SERVER|TEST_[A-Z_]+|PLANNER_PORT|COMMAND|DEPLOY|RUN|SECRETS|PLANNER_CPUS|PLANNER_MEMORY)"
)
"""What only tests, benchmarks and recipes of deploy/ read, and what Kubernetes makes of a service's name."""


def _planners() -> set[str]:
    return {PREFIX + name.upper() for name in Settings.model_fields}


def _agents() -> set[str]:
    return {variable.name for variable in VARIABLES}


def _sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def _check(page: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tools/settings_docs.py", "--check", str(page)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)


def test_the_page_is_what_the_classes_say() -> None:
    assert _check(PAGE).returncode == 0


def test_a_stale_page_is_noticed(tmp_path: Path) -> None:
    stale = tmp_path / "settings.md"
    stale.write_text(PAGE.read_text(encoding="utf-8").replace("DIP_LEASE_MS", "DIP_LEASE_S"), encoding="utf-8")
    found = _check(stale)
    assert found.returncode == 1
    assert "make docs" in found.stderr


def test_each_setting_of_the_planner_is_read() -> None:
    read = {
        node.attr
        for path in _sources("planner_service")
        if path.name != "settings.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute)
        if "settings" in ast.unparse(node.value)
    }
    assert set(Settings.model_fields) - read == set()


def test_each_variable_of_the_agents_is_read() -> None:
    constants = {
        node.value: target.id
        for path in _sources("trainer_agent", "protos/dip/connecting")
        for statement in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
        if isinstance(node := statement.value, ast.Constant) and isinstance(target, ast.Name)
    }
    used = {
        node.id
        for path in _sources("trainer_agent", "protos/dip/connecting")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    assert {name for name in _agents() if constants.get(name) not in used} == set()


@pytest.mark.parametrize(
    "folder", ["docs", "deploy", "planner_service", "trainer_agent", "protos", "examples", "README.md"]
)
def test_no_other_setting_is_named(folder: str) -> None:
    at = ROOT / folder
    files = (
        [at] if at.is_file() else [path for path in at.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    )
    known = _planners() | _agents()
    unknown = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        for name in NAME.findall(path.read_text(encoding="utf-8", errors="ignore"))
        if name not in known and not OF_OTHERS.fullmatch(name)
    }
    assert unknown == set()
