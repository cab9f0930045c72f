"""What a byte is worth at each place of a rank's order, and the choice of ways that this leads to.

The Lagrangian relaxation of the memory limits: each cell alone takes the option that is cheapest when it pays for the
bytes that it holds; prices of bytes rise where the rank holds too much (source: M. Held, P. Wolfe and H. Crowder,
"Validation of subgradient optimization", Mathematical Programming 6, 1974). What it chooses almost fits; a greedy
repair makes it fit, and then takes back what room is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner_service.compiling import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner_service.domain.graph import Ints

    Floats = NDArray[np.float64]

ITERATIONS = 120
"""Steps of the subgradient method."""

PATIENCE = 8
"""Steps without a better bound after which steps get shorter."""


@kernel
def price_bytes(price: Floats, level: Ints, spans: Ints, room: Ints, goal: float) -> tuple[Floats, float]:
    """Worth of a byte at each place that bounds the price of all choices best.

    Parameters
    ----------
    price
        [cells, options]; infinite where there is no such option.
    level
        [cells, options, 3] Bytes held before the backward, at its place, and behind it up to the weight half.
    spans
        [cells, 3] Places of forward, backward and weight half.
    room
        [places] Bytes that may be held.
    goal
        Price of a choice that fits: steps aim at it.

    Returns
    -------
    worth, bound
        [places], and a lower bound on the price of any choice that fits.
    """
    places = len(room)
    scale = max(1, room.max())
    worth, best_worth = np.zeros(places), np.zeros(places)
    best, share, waited = -np.inf, 1.0, 0
    choice = np.zeros(len(spans), dtype=np.int64)
    for _ in range(ITERATIONS):
        bound = _cheapest(price, level, spans, worth, choice) - (worth * room).sum()
        if bound > best + 1e-9 * abs(best):
            best, waited = bound, 0
            best_worth[:] = worth
        else:
            waited += 1
            if waited == PATIENCE:
                share, waited = share / 2, 0
                worth[:] = best_worth
                continue
        over = (held_by(level, spans, choice, places) - room) / scale
        norm = 0.0
        for p in range(places):
            if over[p] > 0 or worth[p] > 0:
                norm += over[p] * over[p]
        if norm == 0.0:
            break
        step = share * max(goal - bound, 1e-6 * abs(goal)) / norm / scale
        for p in range(places):
            worth[p] = max(0.0, worth[p] + step * over[p])
    return best_worth, best


@kernel
def reduced_prices(price: Floats, level: Ints, spans: Ints, worth: Floats) -> Floats:
    """[cells, options] Price of each option, the bytes that it holds paid for."""
    sums = np.zeros(len(worth) + 1)
    for p in range(len(worth)):
        sums[p + 1] = sums[p] + worth[p]
    reduced = np.empty_like(price)
    for c in range(len(spans)):
        f, b, w = spans[c]
        before, at, behind = sums[b] - sums[f], worth[b], sums[w + 1] - sums[b + 1]
        for o in range(price.shape[1]):
            paid = before * level[c, o, 0] + at * level[c, o, 1] + behind * level[c, o, 2]
            reduced[c, o] = price[c, o] + paid
    return reduced


@kernel
def _cheapest(price: Floats, level: Ints, spans: Ints, worth: Floats, choice: Ints) -> float:
    reduced = reduced_prices(price, level, spans, worth)
    total = 0.0
    for c in range(len(spans)):
        choice[c] = np.argmin(reduced[c])
        total += reduced[c, choice[c]]
    return total


@kernel
def held_by(level: Ints, spans: Ints, choice: Ints, places: int) -> Ints:
    """[places] Bytes that a rank holds."""
    change = np.zeros(places + 1, dtype=np.int64)
    for c in range(len(spans)):
        f, b, w = spans[c]
        before, at, behind = level[c, choice[c]]
        change[f] += before
        change[b] += at - before
        change[b + 1] += behind - at
        change[w + 1] -= behind
    return np.cumsum(change)[:places]


@kernel
def made_to_fit(price: Floats, level: Ints, spans: Ints, room: Ints, choice: Ints) -> bool:
    """Change a choice until it fits, for as little as possible a byte; then use the room that is left.

    Returns
    -------
    bool
        Whether it fits.
    """
    places = len(room)
    held = held_by(level, spans, choice, places)
    tries = 2 * price.size  # an option that helps at one place may do harm at another
    while True:
        p = int(np.argmax(held - room))
        if held[p] <= room[p]:
            break
        tries -= 1
        if tries < 0:
            return False
        best, cell, option = np.inf, -1, -1
        for c in range(len(spans)):
            if spans[c, 0] > p or spans[c, 2] < p:
                continue
            now = _level_at(level[c, choice[c]], spans[c], p)
            for o in range(price.shape[1]):
                saved = now - _level_at(level[c, o], spans[c], p)
                if saved <= 0 or price[c, o] == np.inf:
                    continue
                worse = (price[c, o] - price[c, choice[c]]) / min(saved, held[p] - room[p])
                if worse < best:
                    best, cell, option = worse, c, o
        if cell < 0:
            return False
        _switch(level, spans, held, choice, cell, option)
    changed = True
    while changed:
        changed = False
        for c in range(len(spans)):
            for o in range(price.shape[1]):
                if price[c, o] >= price[c, choice[c]]:
                    continue
                before = choice[c]
                _switch(level, spans, held, choice, c, o)
                span = slice(spans[c, 0], spans[c, 2] + 1)
                if (held[span] > room[span]).any():
                    _switch(level, spans, held, choice, c, before)
                else:
                    changed = True
    return True


@kernel
def _level_at(level: Ints, span: Ints, place: int) -> int:
    part = 0 if place < span[1] else (1 if place == span[1] else 2)
    return int(level[part])


@kernel
def _switch(level: Ints, spans: Ints, held: Ints, choice: Ints, cell: int, option: int) -> None:
    was, becomes = level[cell, choice[cell]], level[cell, option]
    for p in range(spans[cell, 0], spans[cell, 2] + 1):
        held[p] += _level_at(becomes, spans[cell], p) - _level_at(was, spans[cell], p)
    choice[cell] = option
