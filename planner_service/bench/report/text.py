"""How figures and tables are written in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NONE = "-"
"""Stands where nothing was measured."""


def percent(value: float | None, *, signed: bool = False) -> str:
    """A share in percent, with one decimal."""
    if value is None:
        return NONE
    text = f"{100 * value:+.1f}%" if signed else f"{100 * value:.1f}%"
    return text.replace("-0.0%", "0.0%").replace("+0.0%", "0.0%")


def ratio(value: float | None) -> str:
    """A ratio, with two decimals."""
    return NONE if value is None else f"{value:.2f}"


def plain(value: float | None, decimals: int = 0) -> str:
    """A number with thousands apart."""
    return NONE if value is None else f"{value:,.{decimals}f}"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Markdown table; a line that says nothing but its name is left out."""
    kept = [line for line in lines if any(cell != NONE for cell in line[1:])]
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *kept))
