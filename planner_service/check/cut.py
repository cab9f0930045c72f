"""Rules of the sub-microbatches: every instance is in one of them, and which of them consume which results."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.check.facts import Facts


@dataclass(frozen=True, kw_only=True, slots=True)
class Sub:
    """One sub-microbatch: units of its instances and the samples that they belong to, in its order."""

    module: str
    microbatch: int
    units: Sequence[int]
    samples: Sequence[int]

    @property
    def total(self) -> int:
        """Sum of its units."""
        return sum(self.units)

    @property
    def squares(self) -> int:
        """Sum of its squared units."""
        return sum(units * units for units in self.units)

    def units_of(self, samples: frozenset[int]) -> int:
        """Units of its instances that belong to one of these samples."""
        return sum(units for units, sample in zip(self.units, self.samples, strict=True) if sample in samples)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """How a plan cuts the batch.

    Parameters
    ----------
    subs
        By their identifiers.
    producers, consumers
        For each sub-microbatch those whose results it consumes, and those that consume its own, with the units whose
        results travel.
    """

    subs: Mapping[int, Sub]
    producers: Mapping[int, Mapping[int, int]]
    consumers: Mapping[int, Mapping[int, int]]


def check_cut(facts: Facts, listed: Sequence[pb.SubMicrobatch], faults: list[str]) -> Cut:
    """Collect the faults of a plan's sub-microbatches; return them with what they hand to each other."""
    subs: dict[int, Sub] = {}
    seen: Counter[tuple[str, int, int, int]] = Counter()
    for one in listed:
        if one.id in subs:
            faults.append(f"sub-microbatch {one.id} is there twice")
        elif one.module not in facts.modules or not 0 <= one.microbatch < len(facts.units):
            faults.append(f"sub-microbatch {one.id}: no module {one.module!r} or no microbatch {one.microbatch}")
        else:
            subs[one.id] = _check_sub(facts, one, seen, faults)
    for instance in facts.instances():
        if seen[instance] != 1:
            name, j, i, k = instance
            faults.append(
                f"instance {k} of sample {i}, microbatch {j}, {name}: in {seen[instance]} sub-microbatches, not in one"
            )
    return _linked(facts, subs)


def _check_sub(facts: Facts, one: pb.SubMicrobatch, seen: Counter[tuple[str, int, int, int]], faults: list[str]) -> Sub:
    samples, sizes = facts.units[one.microbatch], []
    owners = []
    for ref in one.instances:
        units = samples[ref.sample].get(one.module, ()) if 0 <= ref.sample < len(samples) else ()
        if not 0 <= ref.index < len(units):
            faults.append(f"sub-microbatch {one.id}: there is no instance {ref.index} of sample {ref.sample}")
            continue
        if ref.units != units[ref.index]:
            faults.append(
                f"sub-microbatch {one.id}: instance {ref.index} of sample {ref.sample} is said to have {ref.units} "
                f"units, it has {units[ref.index]}"
            )
        seen[one.module, one.microbatch, ref.sample, ref.index] += 1
        sizes.append(units[ref.index])
        owners.append(ref.sample)
    largest = facts.modules[one.module].largest_units
    if not sizes:
        faults.append(f"sub-microbatch {one.id} has no instances")
    if largest and len(sizes) > 1 and sum(sizes) > largest:
        faults.append(f"sub-microbatch {one.id} has {sum(sizes)} units, at most {largest} were asked for")
    return Sub(module=one.module, microbatch=one.microbatch, units=sizes, samples=owners)


def _linked(facts: Facts, subs: Mapping[int, Sub]) -> Cut:
    """Link sub-microbatches of one microbatch that share a sample, along the inputs of their modules."""
    by_place: dict[tuple[int, str], list[int]] = defaultdict(list)
    for key, sub in subs.items():
        by_place[sub.microbatch, sub.module].append(key)
    producers: dict[int, dict[int, int]] = {key: {} for key in subs}
    consumers: dict[int, dict[int, int]] = {key: {} for key in subs}
    for key, sub in subs.items():
        wanted = frozenset(sub.samples)
        for name in facts.modules[sub.module].inputs:
            for producer in by_place[sub.microbatch, name]:
                units = subs[producer].units_of(wanted)
                if units:
                    producers[key][producer] = units
                    consumers[producer][key] = units
    return Cut(subs=subs, producers=producers, consumers=consumers)
