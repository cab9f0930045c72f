"""Whether anything is traced, which the OTEL_* variables say that every OpenTelemetry SDK knows."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from typing import Final

from planner_service.tracing.tracer import OFF, use

ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
TRACES_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
EXPORTER: Final = "OTEL_TRACES_EXPORTER"
DISABLED: Final = "OTEL_SDK_DISABLED"

_ONLY_PROTOCOL: Final = "http/protobuf"

_log = logging.getLogger(__name__)


def start() -> None:
    """Trace from now on, if the environment asks for it; what keeps that from working is a warning, and no more."""
    if not _is_asked_for():
        return
    protocol = os.environ.get(TRACES_PROTOCOL) or os.environ.get(PROTOCOL) or _ONLY_PROTOCOL
    if protocol != _ONLY_PROTOCOL:
        _log.warning(
            "nothing is traced: %s asks for %r, spans are sent as %s alone", PROTOCOL, protocol, _ONLY_PROTOCOL
        )
        return
    try:
        from planner_service.tracing.sending import SendingTracer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        _log.warning(
            "nothing is traced, although %s asks for it: no %s here; pip install 'dip-planner[tracing]' brings it",
            ENDPOINT,
            error.name,
        )
        return
    try:
        use(SendingTracer.from_environment())
    except ValueError as error:
        _log.warning("nothing is traced, as an OTEL_* variable cannot be used: %s", error)


async def stop(limit_s: float) -> None:
    """Send what is not sent yet, for so long at most: a planner that ends waits for nobody who takes no spans."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    using = use(OFF)

    def end() -> None:
        using.end()
        with contextlib.suppress(RuntimeError):  # the loop is closed by now
            loop.call_soon_threadsafe(ended.set)

    # A daemon: the process does not wait for it either.
    threading.Thread(target=end, name="end of tracing", daemon=True).start()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await ended.wait()


def _is_asked_for() -> bool:
    if os.environ.get(DISABLED, "").strip().lower() == "true":
        return False
    if os.environ.get(EXPORTER, "").strip() not in ("", "otlp"):
        return False
    return bool(os.environ.get(ENDPOINT) or os.environ.get(TRACES_ENDPOINT))
