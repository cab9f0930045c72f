"""``dip serve`` whose workers solve as scripted: run as a module, in place of the command.

No limit of time strikes there that is no setting, and workers give way to nobody: a busy machine's are slow. Where
`FAREWELL` is set, it waits for whoever takes its spans, too.
"""

from __future__ import annotations

import os
import sys
from functools import partial

import scripted_engine
from waiting import PATIENCE_S

from planner_service.logs import child_output
from planner_service.pool import SolverPool, pool, process
from planner_service.server import channel_options, claimed, lifecycle, main
from planner_service.server.client_calls import ClientCalls
from planner_service.server.main import serve
from planner_service.settings import load_settings

FAREWELL = "DIP_TEST_FAREWELL"
"""Set: spans are waited for until they are sent."""


def serve_patiently() -> int:
    """Serve until told to stop; returns the exit code."""
    process._EXIT_LIMIT_S = child_output._LAST_WORDS_S = child_output._SILENCE_S = PATIENCE_S
    pool.FALLBACK_LIMIT_S = claimed.FALLBACK_LIMIT_S = PATIENCE_S
    channel_options.GREETING_MS = int(1000 * PATIENCE_S)
    lifecycle.ClientCalls = partial(ClientCalls, request_s=PATIENCE_S)
    SolverPool._may_hurry = lambda _: True
    os.environ[scripted_engine.KEEPS_PACE] = "yes"
    if FAREWELL in os.environ:
        main._SHORTEST_FAREWELL_S = main._LONGEST_FAREWELL_S = PATIENCE_S
    return serve(load_settings(), engine=scripted_engine.__name__)


if __name__ == "__main__":
    sys.exit(serve_patiently())
