"""Where Prometheus reads: the address of the metrics, taken."""

from __future__ import annotations

from planner_service import settings as names
from planner_service.metrics import MetricsEndpoint
from planner_service.server.listening import ListenError, explain, split_address


def listen_for_metrics(address: str) -> tuple[MetricsEndpoint | None, str]:
    """Take the address; the endpoint answers once it is started.

    Returns
    -------
    tuple[MetricsEndpoint or None, str]
        None where there is to be none; and the address, with the port that was taken where it asked for port 0.

    Raises
    ------
    ListenError
    """
    if address == names.METRICS_OFF:
        return None, address
    try:
        endpoint = MetricsEndpoint(*split_address(address))
    except OSError as error:
        raise ListenError(explain(address, names.METRICS_LISTEN, error)) from error
    return endpoint, f"{address.rpartition(':')[0]}:{endpoint.port}"
