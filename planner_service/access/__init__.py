"""Who calls, and what they may do."""

from planner_service.access.caller import ANYONE, Caller, Role, current_caller, set_caller
from planner_service.access.peers import peer_caller

__all__ = ["ANYONE", "Caller", "Role", "current_caller", "peer_caller", "set_caller"]
