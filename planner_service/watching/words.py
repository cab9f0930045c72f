"""Times, ranges and lists as people read them."""

from __future__ import annotations

from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_CLOCK_FROM_US: Final = 1_500_000_000_000_000  # 2017: an attempt before is no clock's
_CLOCK_UNTIL_US: Final = 4_000_000_000_000_000

_UNITS: Final = (("us", 1, 999.5), ("ms", 1_000, 999_500), ("s", 1_000_000, 100_000_000))
_LARGEST_UNIT: Final = ("min", 60_000_000)


def duration(us: int) -> str:
    """Three digits and a unit: 950 us, 8.71 ms, 871 ms, 1.03 s, 12.5 min."""
    unit, size = next(((unit, size) for unit, size, until_us in _UNITS if us < until_us), _LARGEST_UNIT)
    value = us / size
    decimals = 0 if unit == "us" or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{decimals}f} {unit}"


def ago(ms: int) -> str:
    """One number and a unit: 3 s, 12 min, 5 h, 2 days."""
    seconds = ms // 1000
    for unit, size in (("day", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            count = seconds // size
            return f"{count} {unit}s" if unit == "day" else f"{count} {unit}"
    return f"{seconds} s"


def attempt(number: int) -> str:
    """When an attempt started, in local time, where its number is a clock's as agents draw it; else the number."""
    if not _CLOCK_FROM_US <= number < _CLOCK_UNTIL_US:
        return str(number)
    return datetime.fromtimestamp(number / 1e6).strftime("%m-%d %H:%M")


def relative(value: float) -> str:
    """A part of one as percent with its sign: +1.0%, -0.3%."""
    return f"{value:+.1%}"


def percent(value: float) -> str:
    """A part of one as percent: 0.3%."""
    return f"{value:.1%}"


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in their order, those that follow each other as a range: 0-3, 5, 9."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def visits(ranks: Sequence[int]) -> str:
    """Ranks as they are visited, up or down, each walk as a range: 2 x 0-3 of a loop; 0-3, 3-0 of a V."""
    walks: list[list[int]] = []
    for rank in ranks:
        step = rank - walks[-1][-1] if walks else 0
        if walks and step in (1, -1) and (len(walks[-1]) == 1 or walks[-1][-1] - walks[-1][-2] == step):
            walks[-1].append(rank)
        else:
            walks.append([rank])
    named = [f"{walk[0]}-{walk[-1]}" if len(walk) > 1 else f"{walk[0]}" for walk in walks]
    repeated = ((name, len(list(same))) for name, same in groupby(named))
    return ", ".join(f"{times} x {name}" if times > 1 else name for name, times in repeated)


def counted(count: int, one: str, many: str = "") -> str:
    """A number and what it counts: 1 rank, 8 ranks."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def and_more(names: Sequence[str], shown: int) -> str:
    """Names separated by commas, those beyond so many counted."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def printable(text: str) -> str:
    """Text of somebody else in one line that a terminal shows and does not obey."""
    return "".join(c if c.isprintable() else " " if c in "\n\t" else c.encode("unicode_escape").decode() for c in text)
