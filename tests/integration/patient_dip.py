"""``dip`` for tests whose Redis and planners answer: ones that a busy machine holds up for seconds are not lost."""

from __future__ import annotations

import sys
from unittest.mock import patch

from waiting import PATIENCE_S

from planner_service.cli import main


def make_patient(command: str) -> None:
    """Let a command wait as long as tests do for who answers; imports what it imports anyway."""
    if command == "serve":
        from planner_service.store.redis_store import RedisStore as Asking
    elif command in ("jobs", "status"):
        from planner_service.watching.planner import PlannerClient as Asking
    else:
        return
    patch.dict(Asking.__init__.__kwdefaults__, timeout_s=PATIENCE_S).start()


if __name__ == "__main__":
    make_patient(sys.argv[1])
    sys.exit(main())
