"""Validation of a batch: every sample against the model that trains on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.validation.limits import MAX_INSTANCES, MAX_MICROBATCHES, MAX_UNITS
from dip.validation.magnitude import check_magnitudes
from dip.validation.violations import Violations

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dip.planner.v1 import planner_pb2 as pb


def validate_batch(spec: pb.JobSpec, batch: pb.Batch, path: str = "batch") -> None:
    """Check a batch of a valid job.

    An ``Instances`` message without units means what an absent module means: no work.

    Parameters
    ----------
    spec
        A job that is valid.
    batch
        The batch.
    path
        Where the batch stands in its request.

    Raises
    ------
    InvalidRequestError
        With every violation; also where the batch is so large that times or sizes of its plan would not be whole
        numbers that an int64 holds.
    """
    violations = Violations()
    check_batch(spec, batch, path, violations)
    violations.raise_if_any()
    check_magnitudes(spec, batch, path, violations)
    violations.raise_if_any()


def check_batch(spec: pb.JobSpec, batch: pb.Batch, path: str, violations: Violations) -> None:
    """Collect a batch's violations, all but those of sums."""
    if not batch.microbatches:
        violations.missing(f"{path}.microbatches", "at least one microbatch, which may have no samples")
    if len(batch.microbatches) > MAX_MICROBATCHES:
        found = f"{len(batch.microbatches)} microbatches"
        violations.add(f"{path}.microbatches", found, f"at most {MAX_MICROBATCHES}")
        return
    rules = _SampleRules(spec.model.modules)
    num_instances = 0
    for j, microbatch in enumerate(batch.microbatches):
        num_instances += _check_microbatch(microbatch, rules, f"{path}.microbatches[{j}]", violations)
    if num_instances > MAX_INSTANCES:
        violations.add(f"{path}.microbatches", f"{num_instances} instances", f"at most {MAX_INSTANCES} in a batch")


def _check_microbatch(microbatch: pb.Microbatch, rules: _SampleRules, path: str, violations: Violations) -> int:
    """Collect a microbatch's violations; return the number of its instances."""
    total, num_instances = dict.fromkeys(rules.names, 0), 0
    for i, sample in enumerate(microbatch.samples):
        present, by_module = [], sample.instances
        for name in by_module:
            units = by_module[name].units[:]
            if units or name not in total:
                present.append(name)
            if not units:
                continue
            num_instances += len(units)
            if name in total:
                total[name] += sum(units)
            if min(units) < 1 or max(units) > MAX_UNITS:
                _check_units(units, f'{path}.samples[{i}].instances["{name}"].units', violations)
        for key, held, allowed in rules.broken_by(tuple(present)):
            violations.add(f"{path}.samples[{i}].instances{key}", held, allowed)
    for name, units_of_module in total.items():
        if units_of_module > MAX_UNITS:
            violations.add(f"{path}.samples", f"{units_of_module} units of {name}", f"at most {MAX_UNITS} a module")
    return num_instances


def _check_units(units: Sequence[int], path: str, violations: Violations) -> None:
    for k, value in enumerate(units):
        violations.in_range(f"{path}[{k}]", value, 1, MAX_UNITS)


class _SampleRules:
    """Which modules a sample must have instances for, given those that it has.

    A batch has thousands of samples and a handful of combinations of modules: each is judged once.
    """

    def __init__(self, modules: Sequence[pb.Module]) -> None:
        self.names = [module.name for module in modules]
        self._consumers: dict[str, list[str]] = {name: [] for name in self.names}
        for module in modules:
            for name in module.inputs:
                self._consumers.get(name, []).append(module.name)
        self._judged: dict[tuple[str, ...], list[tuple[str, object, str]]] = {}

    def broken_by(self, present: tuple[str, ...]) -> list[tuple[str, object, str]]:
        """Key in the map of instances, what it holds and what is allowed, for each rule that is broken."""
        if present not in self._judged:
            self._judged[present] = list(self._judge(present))
        return self._judged[present]

    def _judge(self, present: tuple[str, ...]) -> Iterator[tuple[str, object, str]]:
        here = sorted(present)
        for name in here:
            if name not in self._consumers:
                yield f'["{name}"]', f"for module {name!r}", f"for one of the modules {self.names}"
                continue
            consumers = self._consumers[name]
            if name != self.names[-1] and consumers and not set(consumers) & set(here):
                yield f'["{name}"]', f"consumed by no instance of {consumers}", "of a sample that has such instances"
        if self.names and self.names[-1] not in here:
            yield (
                "",
                f"for the modules {here}",
                f"with one for the last module, {self.names[-1]!r}: it computes the loss",
            )
