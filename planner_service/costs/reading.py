"""From the tables of a description's file to a description, or every fault that they have."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from planner_service.costs.checks import shown
from planner_service.costs.description import (
    BatchDescription,
    ClusterDescription,
    Description,
    ModuleDescription,
    WeightMemory,
)
from planner_service.costs.gpus import find_gpu, read_gpus
from planner_service.costs.operators import Efficiency
from planner_service.costs.roofline import STRATEGIES
from planner_service.costs.tables import DescriptionError, Faults, field_names, read_table
from planner_service.costs.transformer import Transformer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planner_service.costs.gpus import Gpu

T = TypeVar("T")

_SHAPE = field_names(Transformer)
_ANY_SHAPE = Transformer(layers=1, width=1, mlp_width=1, heads=1)
"""Stands in for a faulty shape, so that the other faults of its module are found."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Top:
    """Keys at the top of the file that are no tables."""

    gpu: str
    tensor_parallel: int = 1
    strategies: tuple[str, ...] = STRATEGIES
    split_backward: bool = False


_TABLES = ("modules", "cluster", "memory", "efficiency", "batch", "gpus")


def read_description(tables: Mapping[str, Any], gpus: Mapping[str, Gpu] | None = None) -> Description:
    """Read a description.

    Parameters
    ----------
    tables
        What the file holds, as ``tomllib`` or ``json`` reads it; docs/costs.md lists the keys.
    gpus
        GPUs of the user's own, before those that the description and this package know.

    Raises
    ------
    DescriptionError
        With every fault: the field's path, what it held, what is allowed.
    """
    faults = Faults()
    top = read_table(_Top, dict(tables), "", faults, others=_TABLES)
    own = _collected(faults, lambda: read_gpus(_table(tables.get("gpus", {}), "gpus"), "gpus")) or {}
    parts: dict[str, Any] = {
        "modules": _modules(tables.get("modules"), faults),
        "cluster": read_table(ClusterDescription, tables.get("cluster", {}), "cluster", faults),
        "memory": read_table(WeightMemory, tables.get("memory", {}), "memory", faults),
        "efficiency": read_table(Efficiency, tables.get("efficiency", {}), "efficiency", faults),
        "batch": read_table(BatchDescription, tables.get("batch", {}), "batch", faults),
    }
    if top is not None:
        parts["gpu"] = _collected(faults, lambda: find_gpu(top.gpu, {**own, **(gpus or {})}))
        parts |= {name: getattr(top, name) for name in ("tensor_parallel", "strategies", "split_backward")}
    faults.raise_if_any()
    try:
        return Description(**parts)
    except ValueError as error:
        raise DescriptionError((str(error),)) from error


def _modules(held: object, faults: Faults) -> tuple[ModuleDescription, ...]:
    if not isinstance(held, list) or not held:
        says = " is missing" if held is None else f" is {shown(held)}"
        faults.add("modules", f"{says}, must be a list of at least one table, [[modules]]")
        return ()
    made = [_module(table, f"modules[{i}]", faults) for i, table in enumerate(held)]
    return tuple(module for module in made if module is not None)


def _module(table: object, path: str, faults: Faults) -> ModuleDescription | None:
    """Read one module: the keys of its layers' shape stand beside the others."""
    if not isinstance(table, dict):
        faults.add(path, f" is {shown(table)}, must be a table")
        return None
    before = len(faults)
    shape = {key: value for key, value in table.items() if key in _SHAPE}
    if "measured" in table:
        if not shape:
            return read_table(ModuleDescription, table, path, faults, transformer=None)
        allowed = f"without a shape of layers: there are {', '.join(shape)} as well"
        faults.add(path, f".measured is {shown(table['measured'])}, must be {allowed}")
        return None
    others = {key: value for key, value in table.items() if key not in _SHAPE}
    transformer = read_table(Transformer, shape, path, faults) or _ANY_SHAPE
    module = read_table(ModuleDescription, others, path, faults, others=_SHAPE, transformer=transformer, measured="")
    return None if len(faults) > before else module


def _table(held: object, path: str) -> Mapping[str, object]:
    if not isinstance(held, dict):
        raise DescriptionError((f"{path} is {shown(held)}, must be a table",))
    return held


def _collected(faults: Faults, make: Callable[[], T]) -> T | None:
    """Return what is made, or collect why it cannot be."""
    try:
        return make()
    except DescriptionError as error:
        for fault in error.faults:
            faults.add("", fault)
        return None
