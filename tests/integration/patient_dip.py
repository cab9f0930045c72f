"""``dip`` for tests whose Redis answers: one that a busy machine holds up for seconds is not taken for lost."""

from __future__ import annotations

import sys
from unittest.mock import patch

from waiting import PATIENCE_S

from planner_service.cli import main
from planner_service.store.redis_store import RedisStore

if __name__ == "__main__":
    with patch.dict(RedisStore.__init__.__kwdefaults__, timeout_s=PATIENCE_S):
        sys.exit(main())
