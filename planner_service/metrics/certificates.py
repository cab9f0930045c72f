"""How long certificates are good."""

from __future__ import annotations

from planner_service.metrics import catalogue


def certificate_is_valid(begins_unix_s: float, ends_unix_s: float) -> None:
    """The certificate that is shown to trainers is valid from then until then, in seconds since 1970."""
    catalogue.CERTIFICATE_START.labels("server").set(begins_unix_s)
    catalogue.CERTIFICATE_EXPIRY.labels("server").set(ends_unix_s)
