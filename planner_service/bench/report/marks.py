"""Puts generated tables between marks of a Markdown file, and leaves all else as it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

OPENING, CLOSING = re.compile(r"<!-- bench:([^ ]*) -->"), "<!-- /bench -->"


class MarkError(ValueError):
    """Marks that are not as they should be."""


def fill(text: str, tables: Mapping[str, str]) -> str:
    """Renew what stands between ``<!-- bench:NAME -->`` and ``<!-- /bench -->``.

    Parameters
    ----------
    text
        Of the file.
    tables
        What to put there, by name.

    Raises
    ------
    MarkError
        If a mark names no table or is not closed, or there is none.
    """
    filled: list[str] = []
    rest = text
    while opened := OPENING.search(rest):
        name = opened.group(1)
        if name not in tables:
            raise MarkError(f"mark names {name!r}, must be of {', '.join(tables)}")
        closed = rest.find(CLOSING, opened.end())
        following = OPENING.search(rest, opened.end())
        if closed < 0 or (following and following.start() < closed):
            raise MarkError(f"mark {opened.group()} is not closed by {CLOSING}")
        filled += [rest[: opened.end()], "\n\n", tables[name], "\n\n", CLOSING]
        rest = rest[closed + len(CLOSING) :]
    if not filled:
        raise MarkError("there is no mark like <!-- bench:targets --> to put a table after")
    return "".join((*filled, rest))
