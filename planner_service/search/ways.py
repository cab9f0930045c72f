"""Ways in which the layers of a cell may run: the mixtures of strategies that no other one beats.

Layers of one kind are alike, so a mixture is how many of them run by each strategy; which of them does not matter, and
those that keep less go first.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from dip.costs import STORE, ZERO, Cost

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dip.job import LayerRun
    from dip.memory import Way
    from dip.work import Kind, Work

MOST_WAYS = 10
"""Ways that are left of a cell to choose from."""

MOST_MIXTURES = 32
"""Mixtures that are looked at for each run of equal layers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mixture:
    """Some layers, each with a strategy, and what they cost together."""

    way: Way
    cost: Cost

    @property
    def time_us(self) -> float:
        """Forward and backward."""
        return _time_us(self.cost)

    def followed_by(self, other: Mixture) -> Mixture:
        """Both, the other's layers behind these."""
        return Mixture(way=_joined(self.way, other.way), cost=self.cost.plus(other.cost))


class CandidateWays:
    """For each kind of cell the ways worth choosing from, the quickest first.

    Parameters
    ----------
    work
        The stage tasks.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._known: dict[int, tuple[Way, ...]] = {}

    def of(self, cell: int) -> tuple[Way, ...]:
        """Ways of a cell; one where it keeps nothing."""
        if not self._work.has_backward(cell):
            return ((),)
        kind = self._work.cell_kind[cell]
        if kind not in self._known:
            self._known[kind] = self._find(self._work.kinds[kind])
        return self._known[kind]

    def _find(self, kind: Kind) -> tuple[Way, ...]:
        module = self._work.job.modules[kind.chunk.module]
        found = [Mixture(way=(), cost=ZERO)]
        for run, count in module.runs_of(kind.chunk.first_layer, kind.chunk.num_layers):
            mixed = thinned(undominated(_mixtures(run, count, kind, frozen=module.frozen)), MOST_MIXTURES)
            found = thinned(undominated(a.followed_by(b) for a, b in product(found, mixed)), MOST_MIXTURES)
        ways = [_normal(mixture.way) for mixture in thinned(found, MOST_WAYS)]
        return tuple(dict.fromkeys(ways))


def some_are_quicker(work: Work) -> bool:
    """Whether some strategy takes some layer less time than storing: it pays without any limit of memory."""
    kinds = {work.cell_kind[c] for c in range(work.num_cells) if work.has_backward(c)}
    return any(_is_quicker_lean(work, work.kinds[kind]) for kind in kinds)


def _is_quicker_lean(work: Work, kind: Kind) -> bool:
    module = work.job.modules[kind.chunk.module]
    for run, _ in module.runs_of(kind.chunk.first_layer, kind.chunk.num_layers):
        names = (STORE, *run.table.strategies)
        stored, *others = (_time_us(_cost_of(run, name, kind, frozen=module.frozen)) for name in names)
        if any(other < stored for other in others):
            return True
    return False


def undominated(mixtures: Iterable[Mixture]) -> list[Mixture]:
    """Mixtures that no other one beats in time, in bytes kept and in bytes between the halves; the quickest first."""
    kept: list[Mixture] = []
    by_time = sorted(mixtures, key=lambda m: (m.time_us, m.cost.activation_bytes, m.cost.split_activation_bytes))
    for mixture in by_time:
        cost = mixture.cost
        if not any(
            other.cost.activation_bytes <= cost.activation_bytes
            and other.cost.split_activation_bytes <= cost.split_activation_bytes
            for other in kept
        ):
            kept.append(mixture)
    return kept


def thinned(mixtures: Sequence[Mixture], most: int) -> list[Mixture]:
    """At most so many of some mixtures, at even steps of what they keep, the first and the leanest among them."""
    if len(mixtures) <= most:
        return list(mixtures)
    by_size = sorted(mixtures[1:], key=lambda m: m.cost.activation_bytes)
    least, largest = by_size[0].cost.activation_bytes, by_size[-1].cost.activation_bytes
    steps = [least + (largest - least) * i / (most - 2) for i in range(most - 1)]
    chosen = {id(min(by_size, key=lambda m: abs(m.cost.activation_bytes - step))) for step in steps}
    return [mixtures[0], *(mixture for mixture in mixtures[1:] if id(mixture) in chosen)]


def _mixtures(run: LayerRun, count: int, kind: Kind, *, frozen: bool) -> Iterator[Mixture]:
    """Ways to run ``count`` equal layers, all of one strategy and of two and more strategies at even steps."""
    names = [name for name in run.table.strategies if name != STORE] + [STORE]
    costs = [_cost_of(run, name, kind, frozen=frozen) for name in names]
    step = 1
    while _num_compositions(-(-count // step), len(names)) > 4 * MOST_MIXTURES:
        step += 1
    for counts in _compositions(count, len(names), step):
        cost, way = ZERO, []
        for name, of_layer, layers in zip(names, costs, counts, strict=True):
            if layers:
                cost = cost.plus(of_layer, layers)
                way.append((name, layers))
        yield Mixture(way=tuple(way), cost=cost)


def _cost_of(run: LayerRun, name: str, kind: Kind, *, frozen: bool) -> Cost:
    """What a layer costs with a strategy; frozen ones have no gradients of weights."""
    cost = run.table.at(name, kind.units, kind.squares)
    return cost._replace(backward_weight_us=0.0) if frozen else cost


def _time_us(cost: Cost) -> float:
    return cost.forward_us + cost.backward_input_us + cost.backward_weight_us


def _num_compositions(count: int, parts: int) -> int:
    """How many rows :func:`_compositions` has with steps of 1."""
    many = 1
    for i in range(1, parts):
        many = many * (count + i) // i
    return many


def _compositions(count: int, parts: int, step: int) -> Iterator[tuple[int, ...]]:
    """Ways to write ``count`` as a sum of ``parts``, each a multiple of ``step``, or all that is left."""
    if parts == 1:
        yield (count,)
        return
    for first in sorted({*range(0, count, step), count}):
        for rest in _compositions(count - first, parts - 1, step):
            yield (first, *rest)


def _joined(a: Way, b: Way) -> Way:
    if a and b and a[-1][0] == b[0][0]:
        return (*a[:-1], (b[0][0], a[-1][1] + b[0][1]), *b[1:])
    return (*a, *b)


def _normal(way: Way) -> Way:
    """Return the way, or () for one in which all layers store."""
    return () if all(name == STORE for name, _ in way) else way
