"""Access files and tokens for tests."""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Metadata = tuple[tuple[str, str], ...]


def bearer(token: str) -> Metadata:
    """What a call carries that presents a token."""
    return (("authorization", f"Bearer {token}"),)


class AccessFile:
    """An access file, written anew at each change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: dict[str, dict[str, object]] = {}

    def let_in(self, name: str, *tokens: str, roles: Sequence[str] = ("trainer",), jobs: Sequence[str] = ("*",)) -> str:
        """Add an entry, or replace it; return its token, or the last of those that are given."""
        held = tokens or (secrets.token_urlsafe(32),)
        digests = [hashlib.sha256(token.encode()).hexdigest() for token in held]
        self._entries[name] = {"name": name, "sha256": digests, "roles": list(roles), "jobs": list(jobs)}
        self._write()
        return held[-1]

    def forget(self, name: str) -> None:
        """Take an entry away."""
        del self._entries[name]
        self._write()

    def text(self) -> str:
        """What the file holds; JSON's texts and lists are TOML's."""
        tables = self._entries.values()
        return "".join(
            "[[tokens]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
            for table in tables
        )

    def _write(self) -> None:
        """Put it in place in one step: whoever reads it now and then never finds a part."""
        whole = self.path.with_name(f"{self.path.name}.new")
        whole.write_text(self.text())
        whole.replace(self.path)
