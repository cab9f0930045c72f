"""``dip serve`` whose workers solve as scripted: run as a module, in place of the command."""

import sys

import scripted_engine

from planner_service.server.main import serve
from planner_service.settings import load_settings

if __name__ == "__main__":
    sys.exit(serve(load_settings(), engine=scripted_engine.__name__))
