"""The checker and the workloads that live beside the repository, and plans to hold against them.

They are found in ``../shared``, or where ``DIP_SHARED`` says. Where they are absent, as in a stranger's clone, these
tests are reported as not run; in CI (``CI`` is set) that is a failure.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import corners
import pytest
from dip.fallback import fallback_plan
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from google.protobuf import json_format

if TYPE_CHECKING:
    from types import ModuleType

    from google.protobuf.message import Message

SHARED = "DIP_SHARED"
REPOSITORY = Path(__file__).resolve().parents[2]
SEARCH_MS = 50


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of what is shared."""
    folder = Path(os.environ.get(SHARED) or REPOSITORY.parent / "shared")
    if not folder.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"{folder} is absent, CI needs it")
        pytest.skip("not run: ../shared is absent")
    return folder


@pytest.fixture(scope="session")
def peer_workloads(shared: Path) -> ModuleType:
    """Return the module that draws the reference workloads."""
    return _module(shared / "workloads" / "make.py")


class PeerChecker:
    """The independent checker, on messages."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def check(self, request: pb.PlanRequest, plan: pb.Plan) -> tuple[list[str], dict[str, Any]]:
        """Return faults and figures."""
        return self._module.check(_json(request), _json(plan))

    def rejects(self, request: pb.PlanRequest, plan: pb.Plan) -> bool:
        """Return its verdict; it may give up on a plan that makes no sense to it, which rejects the plan as well."""
        try:
            return bool(self.check(request, plan)[0])
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return True


@pytest.fixture(scope="session")
def peer(shared: Path) -> PeerChecker:
    """Return the independent checker."""
    return PeerChecker(_module(shared / "check" / "check_plan.py"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """Small requests with what was planned for them, made once a session.

    Parameters
    ----------
    requests
        By the name of their builder.
    plans
        Searched plans and fallbacks, by that name and ``"plan"`` or ``"fallback"``.
    """

    requests: dict[str, pb.PlanRequest]
    plans: dict[tuple[str, str], pb.Plan]

    def copy(self, name: str, kind: str) -> tuple[pb.PlanRequest, pb.Plan]:
        """Return a request, and a copy of its plan to spoil."""
        return self.requests[name], pb.Plan.FromString(self.plans[name, kind].SerializeToString())


@pytest.fixture(scope="session")
def planned(shared: Path) -> Planned:
    """Plan every small case, by search and as the fallback."""
    from planner_service.planning import make_plan  # the solvers take a second to load, even where nothing is run

    requests = {name: build() for name, build in corners.FITTING.items()}
    plans = {}
    for name, request in requests.items():
        loaded = request.partition if request.partition.chunks else default_partition(request.job, request.batch)
        plans[name, "fallback"] = fallback_plan(request.job, loaded, request.batch)
        plans[name, "plan"] = make_plan(request, budget_ms=SEARCH_MS)
    return Planned(requests=requests, plans=plans)


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"shared_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _json(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)
