"""What is tried together: how each module lies on the ranks, and into what sizes its microbatches are cut."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Shape:
    """How one module lies on the ranks.

    Parameters
    ----------
    segments
        How many times a sub-microbatch passes through the module's ranks.
    width
        How many ranks it is on; 0: all.
    zigzag
        Whether every other segment runs in the opposite direction (V-shaped placement).
    backwards
        Whether the first segment runs from the last rank to the first.
    """

    segments: int = 1
    width: int = 0
    zigzag: bool = False
    backwards: bool = False

    def __str__(self) -> str:
        many = f"{self.segments} segment{'s' if self.segments > 1 else ''}"
        where = f" on {self.width} rank{'s' if self.width > 1 else ''}" if self.width else ""
        turns = (" there and back" if self.zigzag else "") + (" from the last rank" if self.backwards else "")
        return many + where + turns


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Choice:
    """Segments, placement and sizes.

    Parameters
    ----------
    shapes
        For each module how it lies on the ranks.
    parts
        For each module into how many sub-microbatches its largest microbatch is cut.
    slices
        Into how many groups that do not depend on each other the microbatch is cut that would keep most memory, and
        others in proportion; 1: microbatches are not cut for memory's sake.
    """

    shapes: tuple[Shape, ...]
    parts: tuple[int, ...]
    slices: int = 1

    def with_shape(self, m: int, shape: Shape) -> Choice:
        """Return the choice with another shape of one module."""
        return replace(self, shapes=(*self.shapes[:m], shape, *self.shapes[m + 1 :]))

    def with_parts(self, m: int, many: int) -> Choice:
        """Return the choice with other sizes of one module."""
        return replace(self, parts=(*self.parts[:m], many, *self.parts[m + 1 :]))
