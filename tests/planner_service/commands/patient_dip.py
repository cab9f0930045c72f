"""``dip`` that waits for planners as long as tests do: ``python patient_dip.py ARGUMENTS``."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from waiting import PATIENCE_S

from planner_service.cli import main
from planner_service.watching.planner import PlannerClient

if __name__ == "__main__":
    PlannerClient.__init__.__kwdefaults__["timeout_s"] = PATIENCE_S
    sys.exit(main())
