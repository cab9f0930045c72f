"""``dip`` for tests whose Redis and planners answer: ones that a busy machine holds up for seconds are not lost."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from unittest.mock import patch

from waiting import PATIENCE_S

from planner_service.cli import main

MODULE = "integration.patient_dip"
"""What is run in place of ``planner_service.cli``."""
FOUND = {"PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))}
"""What a process needs that runs it."""


def write_command(directory: Path) -> None:
    """Write a ``dip`` for scripts that find their commands in this directory."""
    command = directory / "dip"
    found = shlex.join(f"{name}={value}" for name, value in FOUND.items())
    command.write_text(f'#!/bin/sh\nexec env {found} {shlex.join([sys.executable, "-m", MODULE])} "$@"\n')
    command.chmod(0o755)


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
