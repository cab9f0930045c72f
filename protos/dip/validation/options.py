"""Validation of what a job asks of the planner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.validation.limits import MAX_BUDGET_MS, MAX_EVALUATIONS, MAX_INT64, MAX_LAYERS, MAX_UNITS

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb
    from dip.validation.violations import Violations


def check_options(spec: pb.JobSpec, path: str, violations: Violations) -> None:
    """Check ``spec.options`` against the modules and ranks of the same job."""
    options, ranks = spec.options, spec.cluster.ranks
    layers = {module.name: sum(run.count for run in module.layers) for module in spec.model.modules}
    for name, segments in sorted(options.segments.items()):
        field = f'{path}.segments["{name}"]'
        if name not in layers:
            violations.add(field, f"for module {name!r}", f"for one of the modules {list(layers)}")
        elif violations.in_range(field, segments, 1, MAX_LAYERS) and segments * ranks > layers[name]:
            allowed = f"at most {layers[name] // ranks}: {name} has {layers[name]} layers for {ranks} ranks"
            violations.add(field, segments, f"{allowed}; leave it out to let the planner choose")
    for name, units in sorted(options.sub_microbatch_units.items()):
        field = f'{path}.sub_microbatch_units["{name}"]'
        if name not in layers:
            violations.add(field, f"for module {name!r}", f"for one of the modules {list(layers)}")
        else:
            violations.in_range(field, units, 0, MAX_UNITS)
    violations.in_range(f"{path}.budget_ms", options.budget_ms, 0, MAX_BUDGET_MS)
    violations.in_range(f"{path}.max_evaluations", options.max_evaluations, 0, MAX_EVALUATIONS)
    violations.in_range(f"{path}.seed", options.seed, 0, MAX_INT64)
