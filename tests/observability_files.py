"""The queries of the dashboard and of the alert rules, as they stand in their files."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parents[1]
DASHBOARD = ROOT / "deploy" / "observability" / "grafana-dashboard.json"
ALERTS = ROOT / "deploy" / "observability" / "prometheus-alerts.yaml"

_SELECTOR = re.compile(r"\b((?:dip|process)_[a-z0-9_]+)\b(?:\s*\{([^}]*)\})?")
_MATCHER = re.compile(r'([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"')


@dataclass(frozen=True, slots=True)
class Selector:
    """What a query asks for: a name, and matchers (label, operator, value)."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether a sample of that name is asked for; variables of the dashboard stand for anything."""
        return all(_matches(labels.get(label, ""), *how) for label, *how in self.matchers if "$" not in how[1])


def _matches(value: str, operator: str, wanted: str) -> bool:
    is_it = bool(re.fullmatch(wanted, value)) if "~" in operator else value == wanted
    return is_it != operator.startswith("!")


def selectors(expression: str) -> list[Selector]:
    """What a query asks for."""
    return [Selector(name, tuple(_MATCHER.findall(matchers))) for name, matchers in _SELECTOR.findall(expression)]


def dashboard() -> dict[str, Any]:
    loaded = json.loads(DASHBOARD.read_text())
    assert isinstance(loaded, dict)
    return loaded


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    """Every query, with where it stands."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield f"${variable['name']}", variable["definition"]
    for rule in rules():
        yield rule["alert"], rule["expr"]
