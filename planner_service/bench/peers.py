"""What ours is compared with: the baselines of the planner, and further ones that an import path names."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dip.errors import CannotFitError

from planner_service.baselines import BASELINES, Baseline
from planner_service.bench.case import GIVEN
from planner_service.bench.judge import misfit_row, plan_row
from planner_service.bench.spent import spend

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.bench.case import Case, Row

TORCH_ORDERS = "benchmarks.torch_orders:TORCH_BASELINES"
"""PyTorch's own orders: taken from its classes, so they are there only where torch and the repository are."""

TORCH_PREFIX = "torch-"
"""How names of PyTorch's orders begin."""


class Peers(NamedTuple):
    """Baselines by name, and why some that were asked for are absent."""

    baselines: dict[str, Baseline]
    absent: tuple[str, ...]


def load_peers(paths: Iterable[str]) -> Peers:
    """Collect baselines.

    Parameters
    ----------
    paths
        ``module:NAME`` of further mappings from names to baselines.

    Raises
    ------
    ValueError
        If a path is none, or there is no mapping of baselines; the message names it.
    """
    baselines, absent = dict(BASELINES), list[str]()
    for path in paths:
        module, _, name = path.partition(":")
        if not module or not name:
            raise ValueError(f"baselines names {path!r}, must be module:NAME")
        try:
            found = getattr(importlib.import_module(module), name, None)
        except ModuleNotFoundError as error:
            absent.append(f"{path} (no {error.name} here)")
            continue
        if not isinstance(found, Mapping) or not all(isinstance(one, Baseline) for one in found.values()):
            raise ValueError(f"baselines names {path!r}, which is no mapping from names to baselines")
        baselines.update(found)
    return Peers(baselines, tuple(absent))


def peer_row(
    case: Case,
    request: pb.PlanRequest,
    baseline: Baseline,
    *,
    known: pb.Batch | None = None,
    memory: str = GIVEN,
) -> Row:
    """Plan with a baseline, and judge.

    Parameters
    ----------
    known
        What it knows when it chooses its partition; by default the batch itself.
    """
    try:
        plan, spent = spend(partial(baseline.plan, request, known))
    except CannotFitError as error:
        return misfit_row(case, error, method=baseline.name, memory=memory)
    return plan_row(case, baseline.asked(request), plan, spent, method=baseline.name, memory=memory)


def peer_rows(case: Case, request: pb.PlanRequest, baselines: Iterable[Baseline]) -> Iterator[Row]:
    """Plan with baselines that know the batch itself, and judge them."""
    for baseline in baselines:
        yield peer_row(case, request, baseline)
