"""Shows that what a child process writes is in the log, whole, and with what the child was about."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest
from waiting import PATIENCE_S

from planner_service.logs import ChildOutput, child_output
from planner_service.logs.fields import BoundFields, fields_of
from planner_service.logs.formats import TextLines

LOG = logging.getLogger("planner_service.of_test_child")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take what a child writes for a whole at its end alone: on a busy machine it may pause anywhere."""
    monkeypatch.setattr(child_output, "_SILENCE_S", PATIENCE_S)


async def run_child(code: str) -> None:
    output = await ChildOutput.open(LOG)
    output.about = {"job": "a", "worker": 7}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=output.write_end)
    output.is_inherited()
    await process.wait()
    await output.end()


def written_by(code: str, caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Records of what a child writes that runs this code."""
    handler_filter = BoundFields()
    caplog.handler.addFilter(handler_filter)
    try:
        asyncio.run(asyncio.wait_for(run_child(code), PATIENCE_S))
    finally:
        caplog.handler.removeFilter(handler_filter)
    return [record for record in caplog.records if record.name == LOG.name]


def test_a_traceback_is_written_with_fields(caplog: pytest.LogCaptureFixture) -> None:
    """In one record, unless the child is slow to write it."""
    (record,) = written_by("raise LookupError('a bug')", caplog)
    assert record.levelno == logging.WARNING
    assert (fields_of(record)["job"], fields_of(record)["worker"]) == ("a", 7)
    output = str(fields_of(record)["output"])
    assert output.startswith("Traceback (most recent call last)")
    assert output.endswith("LookupError: a bug\n")
    first, *_ = TextLines().format(record).split("\n")
    assert first.endswith(": a child process wrote job=a worker=7")
    assert TextLines().format(record).endswith("\n    LookupError: a bug")


def test_bytes_that_are_no_text_forge_nothing(caplog: pytest.LogCaptureFixture) -> None:
    code = r"import sys; sys.stderr.buffer.write(b'\xff\x1b[2J\n2026-01-01 00:00:00,000 CRITICAL x: forged\n')"
    (record,) = written_by(code, caplog)
    lines = TextLines().format(record).split("\n")
    assert len(lines) == 3
    assert all(line.startswith("    ") and line.isprintable() for line in lines[1:])


def test_a_child_that_writes_without_end_is_read_and_mostly_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Were it not read it would hang; were it all written it would fill the disk."""
    records = written_by("import sys; [sys.stderr.write('x' * 65536) for _ in range(400)]", caplog)
    output = sum(len(str(fields_of(record).get("output", ""))) for record in records)
    assert 0 < output < 400 * 65536 / 4


def test_a_silent_child_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    assert written_by("pass", caplog) == []
