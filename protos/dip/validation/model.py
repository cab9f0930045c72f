"""Validation of a model: its modules, what feeds what, and their layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.validation.costs import check_layer_cost
from dip.validation.limits import MAX_BYTES, MAX_LAYERS, MAX_MODULES
from dip.validation.magnitude import check_static_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.planner.v1 import planner_pb2 as pb
    from dip.validation.violations import Violations


def check_model(model: pb.Model, path: str, violations: Violations) -> None:
    """Check every module, and that the modules make a DAG that is listed with inputs first."""
    modules, at = model.modules, f"{path}.modules"
    if not modules:
        violations.missing(at, "at least one module; the last one computes the loss")
    if len(modules) > MAX_MODULES:
        violations.add(at, f"{len(modules)} modules", f"at most {MAX_MODULES}")
        return
    _check_names(modules, at, violations)
    _check_inputs(modules, at, violations)
    check_static_bytes(model, path, violations)
    for i, module in enumerate(modules):
        _check_layers(module, f"{at}[{i}]", violations)
        for field in ("output_bytes_per_unit", "result_bytes_per_unit"):
            violations.in_range(f"{at}[{i}].{field}", getattr(module, field), 0, MAX_BYTES)


def _check_names(modules: Sequence[pb.Module], path: str, violations: Violations) -> None:
    first: dict[str, int] = {}
    for i, module in enumerate(modules):
        field = f"{path}[{i}].name"
        if violations.name(field, module.name) and first.setdefault(module.name, i) != i:
            violations.add(field, module.name, f"unlike the name of {path}[{first[module.name]}]")


def _check_inputs(modules: Sequence[pb.Module], path: str, violations: Violations) -> None:
    before: list[str] = []
    for i, module in enumerate(modules):
        known: set[str] = set()
        for j, name in enumerate(module.inputs):
            field = f"{path}[{i}].inputs[{j}]"
            if name not in before:
                violations.add(field, name, f"a module listed before this one: {before}")
            elif name in known:
                violations.add(field, name, "named once")
            known.add(name)
        before.append(module.name)
    fed = {name for module in modules for name in module.inputs}
    for i, module in enumerate(modules[:-1]):
        if module.name not in fed:
            violations.add(f"{path}[{i}]", f"{module.name!r}, an input of no module", "one, or the last module")


def _check_layers(module: pb.Module, path: str, violations: Violations) -> None:
    if not module.layers:
        violations.missing(f"{path}.layers", "at least one run of layers")
    num_layers = 0
    for i, run in enumerate(module.layers):
        at = f"{path}.layers[{i}]"
        if violations.in_range(f"{at}.count", run.count, 1, MAX_LAYERS):
            num_layers += run.count
        violations.in_range(f"{at}.static_bytes", run.static_bytes, 0, MAX_BYTES)
        check_layer_cost(run.cost, f"{at}.cost", violations)
    if num_layers > MAX_LAYERS:
        violations.add(f"{path}.layers", f"{num_layers} layers", f"at most {MAX_LAYERS}")
