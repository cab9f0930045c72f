"""Where the log goes, and that everything goes there: libraries' lines, warnings, errors that nobody took."""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING, Literal

from planner_service.logs.fields import BoundFields
from planner_service.logs.formats import JsonLines, TextLines
from planner_service.logs.strangers import leave_out_headers

if TYPE_CHECKING:
    from types import TracebackType

_log = logging.getLogger("planner_service")


def log_to_stderr(*, level: str, format: Literal["text", "json"]) -> None:
    """Write this process's log to standard error, unless whoever runs it here has set up another.

    Parameters
    ----------
    level
        The least level that is written.
    format
        Lines for people, or one JSON object a line.
    """
    handler = logging.StreamHandler()
    handler.addFilter(BoundFields())
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    logging.basicConfig(level=level, handlers=[handler])
    leave_out_headers()
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_of_thread
    sys.unraisablehook = _log_unraisable


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        _log.critical("the process ends: nobody foresaw this error", exc_info=(kind, error, trace))


def _log_uncaught_of_thread(told: threading.ExceptHookArgs) -> None:
    if told.exc_value is not None and not issubclass(told.exc_type, SystemExit):
        name = told.thread.name if told.thread is not None else "?"
        _log.error("thread %s ended with an error", name, exc_info=(told.exc_type, told.exc_value, told.exc_traceback))


def _log_unraisable(told: sys.UnraisableHookArgs) -> None:
    if told.exc_value is not None:
        what = told.err_msg or "an error that could not be raised in"
        _log.error("%s %r", what, told.object, exc_info=(told.exc_type, told.exc_value, told.exc_traceback))
