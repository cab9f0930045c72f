"""When certificates end."""

from __future__ import annotations

from planner_service.metrics import catalogue


def certificate_expires(unix_s: float) -> None:
    """The certificate that is shown to trainers ends then, in seconds since 1970."""
    catalogue.CERTIFICATE_EXPIRY.labels("server").set(unix_s)
