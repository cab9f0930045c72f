"""What calls and streams are counted with."""

from __future__ import annotations

from typing import Final

from planner_service.metrics import catalogue

_PLANS_SENT: Final = catalogue.SENT_SCHEDULES.labels("plan")
_REASONS_SENT: Final = catalogue.SENT_SCHEDULES.labels("unplanned")


def stream_opened() -> None:
    """A rank began to listen."""
    catalogue.OPEN_STREAMS.inc()


def stream_ended() -> None:
    """A rank's stream ended, for whatever reason."""
    catalogue.OPEN_STREAMS.dec()


def schedule_sent(*, is_plan: bool) -> None:
    """A rank was sent its schedule, or why there is none."""
    (_PLANS_SENT if is_plan else _REASONS_SENT).inc()


class CallMetrics:
    """How calls of one method of the contract end.

    Parameters
    ----------
    method
        Its name in the contract.
    streams
        Whether its calls last as long as a training does, so that their time says nothing.
    """

    def __init__(self, method: str, *, streams: bool) -> None:
        self._method = method
        self._seconds = None if streams else catalogue.CALL_SECONDS.labels(method)

    def ended(self, code: str, elapsed_s: float) -> None:
        """Note a call that came to its end.

        Parameters
        ----------
        code
            Name of the gRPC status code.
        elapsed_s
            Since it came in.
        """
        catalogue.CALLS.labels(self._method, code).inc()
        if self._seconds is not None:
            self._seconds.observe(elapsed_s)


class ByteMetrics:
    """What calls of one method of the contract carry.

    Parameters
    ----------
    method
        Its name in the contract.
    """

    def __init__(self, method: str) -> None:
        self._received = catalogue.RECEIVED_BYTES.labels(method)
        self._sent = catalogue.SENT_BYTES.labels(method)

    def received(self, num_bytes: int) -> None:
        """Note a request."""
        self._received.inc(num_bytes)

    def sent(self, num_bytes: int) -> None:
        """Note one message that goes out."""
        self._sent.inc(num_bytes)
