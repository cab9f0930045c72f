"""Which role may call which method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner_service.access.caller import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRAIN: Final = frozenset({Role.TRAINER, Role.OPERATOR})
_READ: Final = frozenset(Role)

ROLES_OF_METHODS: Final[Mapping[str, frozenset[Role]]] = {
    "RegisterJob": _TRAIN,
    "SubmitBatch": _TRAIN,
    "StreamSchedules": _TRAIN,
    "ReportExecution": _TRAIN,
    "CloseJob": _TRAIN,
    "Plan": _TRAIN,
    "ListJobs": _READ,
    "GetJob": _READ,
    "GetPlan": _READ,
}
"""By the method's name in the contract."""


def roles_for(method: str) -> frozenset[Role]:
    """Roles that may call a method of the planner's service; one that is not listed is for operators."""
    return ROLES_OF_METHODS.get(method, frozenset({Role.OPERATOR}))
