"""Baselines that need what the planner may not: they are registered where that is installed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from planner_service.baselines.registry import BASELINES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planner_service.baselines.baseline import Baseline

PROVIDERS = (("benchmarks.torch_orders", "TORCH_BASELINES"),)
"""Modules that are asked, and their mappings of baselines by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Registered:
    """What can be compared with here.

    Parameters
    ----------
    baselines
        By name.
    missing
        Why a provider's are not among them, by its module.
    """

    baselines: Mapping[str, Baseline]
    missing: Mapping[str, str]


def registered_baselines(providers: Sequence[tuple[str, str]] = PROVIDERS) -> Registered:
    """All baselines whose needs are installed.

    PyTorch's orders come from torch's own classes, which the planner never imports: ``benchmarks`` does, in a process
    that only compares.
    """
    baselines, missing = dict(BASELINES), dict[str, str]()
    for module, mapping in providers:
        try:
            baselines |= getattr(import_module(module), mapping)
        except ImportError as error:
            missing[module] = str(error)
    return Registered(baselines=baselines, missing=missing)
