"""How the planner runs that is fuzzed: with short searches and little room, so that inputs reach its bounds."""

from __future__ import annotations

from typing import Final

from planner_service import settings as names

KEPT_ITERATIONS: Final = 4
MOST_JOBS: Final = 128

PLANNER: Final = {
    names.MAX_BUDGET_MS: "5",
    names.MAX_JOBS: str(MOST_JOBS),
    names.MAX_STREAMS: "256",
    names.KEPT_ITERATIONS: str(KEPT_ITERATIONS),
}
"""Settings by their names in the environment. It is the service that is fuzzed, not the search."""
