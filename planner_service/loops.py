"""Tasks that run as long as the planner does: one that ends in an error nobody foresaw is no planner any more."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_LOOP: Final = "planner_loop"

_log = logging.getLogger(__name__)


def start_loop(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Start a task that must not fail; if it does, the event loop's exception handler is told at once.

    Parameters
    ----------
    work
        Runs until it is cancelled.
    name
        What it does, for the log.
    """
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_tell_of_failure)
    return task


def stop_where_a_loop_fails(stop: Callable[[], None]) -> None:
    """Have `stop` called where a task of `start_loop` fails: whoever started the process starts it again.

    A planner that went on would take batches and plan none, or stream none, and look healthy.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if name := context.get(_LOOP):
            _log.critical("the planner stops: its task %r failed", name, exc_info=context["exception"])
            stop()
        else:
            loop.default_exception_handler(context)

    asyncio.get_running_loop().set_exception_handler(handle)


def _tell_of_failure(task: asyncio.Task[None]) -> None:
    if task.cancelled() or (error := task.exception()) is None:
        return
    message = f"the planner's task {task.get_name()!r} failed"
    context = {"message": message, "exception": error, "task": task, _LOOP: task.get_name()}
    task.get_loop().call_exception_handler(context)
