"""What is wrong with the files and settings that say who may call."""

from __future__ import annotations


class AccessError(Exception):
    """Files or settings that cannot be used; the message is one line, names them, and holds no secret."""
