"""Who calls, and what they may do."""

from planner_service.access.access import Access
from planner_service.access.caller import ANYONE, Caller, Role, current_caller, set_caller
from planner_service.access.certificates import Certificates
from planner_service.access.errors import AccessError
from planner_service.access.peers import peer_caller
from planner_service.access.permissions import roles_for
from planner_service.access.tokens import Tokens

__all__ = [
    "ANYONE",
    "Access",
    "AccessError",
    "Caller",
    "Certificates",
    "Role",
    "Tokens",
    "current_caller",
    "peer_caller",
    "roles_for",
    "set_caller",
]
