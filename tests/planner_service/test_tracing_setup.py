"""Shows that what keeps tracing from working is one warning, and that a collector that is away is told of seldom."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from planner_service import tracing
from planner_service.tracing.quiet import OnceInAWhile

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _off() -> Iterator[None]:
    before = tracing.use(tracing.OFF)
    yield
    tracing.use(before).end()


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "http/json"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-1", "max_export_batch_size"),
    ],
)
def test_a_variable_that_cannot_be_used_is_a_warning(
    variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv(variable, value)
    tracing.start()
    assert tracing.tracer() is tracing.OFF
    (record,) = [record for record in caplog.records if record.name == "planner_service.tracing.setup"]
    assert record.levelno == logging.WARNING
    assert said.lower() in record.getMessage().lower()


def test_it_traces_where_it_is_asked(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1/v1/traces")
    tracing.start()
    assert tracing.tracer() is not tracing.OFF
    assert not caplog.records


def test_a_place_in_the_code_speaks_once_in_a_while() -> None:
    now_s = 0.0
    quiet = OnceInAWhile(period_s=60, clock=lambda: now_s)

    def passes(line: int) -> bool:
        return quiet.filter(logging.LogRecord("a", logging.ERROR, "file.py", line, "m", None, None))

    assert [passes(1), passes(1), passes(2)] == [True, False, True]
    now_s = 59.0
    assert not passes(1)
    now_s = 60.0
    assert [passes(1), passes(1)] == [True, False]
