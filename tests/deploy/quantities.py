"""Amounts of CPU and memory as Kubernetes and compose write them, for tests."""

from __future__ import annotations

import re

_UNITS = {"": 1, "k": 2**10, "Ki": 2**10, "m": 2**20, "mb": 2**20, "Mi": 2**20, "g": 2**30, "gb": 2**30, "Gi": 2**30}


def in_bytes(text: str) -> int:
    """Return an amount of memory: ``6Gi``, ``2g``, ``1gb``."""
    match = re.fullmatch("([0-9]+)([A-Za-z]*)", text)
    assert match is not None, text
    return int(match[1]) * _UNITS[match[2]]


def in_cores(text: str) -> float:
    """Return an amount of CPU: ``8``, ``500m``."""
    return int(text.removesuffix("m")) / 1000 if text.endswith("m") else float(text)
