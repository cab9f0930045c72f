"""``dip serve`` whose workers solve as scripted: run as a module, in place of the command.

It waits for the ends and the last words of other processes as long as a test does; where `FAREWELL` is set, for whoever
takes its spans, too.
"""

import os
import sys

import scripted_engine
from waiting import PATIENCE_S

from planner_service.logs import child_output
from planner_service.pool import process
from planner_service.server import main
from planner_service.server.main import serve
from planner_service.settings import load_settings

FAREWELL = "DIP_TEST_FAREWELL"
"""Set: spans are waited for until they are sent."""

if __name__ == "__main__":
    process._EXIT_LIMIT_S = child_output._LAST_WORDS_S = child_output._SILENCE_S = PATIENCE_S
    if FAREWELL in os.environ:
        main._SHORTEST_FAREWELL_S = main._LONGEST_FAREWELL_S = PATIENCE_S
    sys.exit(serve(load_settings(), engine=scripted_engine.__name__))
