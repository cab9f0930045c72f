"""Compiling the search's kernels beside a planner that serves already: in a process of its own, which is waited for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time

from planner_service.kernel_cache import CACHE, are_compiled
from planner_service.logs import ChildOutput

_log = logging.getLogger(__name__)


async def compile_beside() -> None:
    """Compile what is not compiled yet, and say so before and after.

    Cancelling it ends the process; what it has compiled by then is kept.
    """
    if await asyncio.to_thread(are_compiled):
        return
    _log.warning(
        "compiling the search's kernels, once for this installation, which takes about a minute; until then plans are "
        "the fixed schedule (make setup, or python -m planner_service.warmup, compiles beforehand); kept in %s",
        CACHE,
    )
    started = time.monotonic()
    output = await ChildOutput.open(_log)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-P", "-m", "planner_service.warmup"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=output.write_end,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)},
    )
    output.is_inherited()
    try:
        code = await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await output.end()
    if code == 0:
        _log.info("compiled the search's kernels in %.0f s: plans are searched from now on", time.monotonic() - started)
    else:
        _log.error("the search's kernels did not compile, exit code %d: plans stay the fixed schedule", code)
