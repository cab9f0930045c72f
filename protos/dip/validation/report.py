"""Validation of what a rank reports about one iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.costs import STORE
from dip.planner.v1 import planner_pb2 as pb
from dip.validation.keys import check_attempt, check_iteration, check_rank, check_replica
from dip.validation.limits import MAX_INT64, MAX_REASON_LENGTH, MAX_REPORTED_ACTIONS, MAX_TOTAL_US
from dip.validation.violations import Violations

if TYPE_CHECKING:
    from collections.abc import Mapping

DIGEST_BYTES = 32

_COMPUTE = frozenset(
    (
        pb.ACTION_KIND_FORWARD,
        pb.ACTION_KIND_BACKWARD,
        pb.ACTION_KIND_BACKWARD_INPUT,
        pb.ACTION_KIND_BACKWARD_WEIGHT,
    )
)
_KINDS = frozenset(pb.ActionKind.values()) - {pb.ACTION_KIND_UNSPECIFIED}
_MAX_INT32 = 2**31 - 1


def validate_report_execution(request: pb.ReportExecutionRequest, spec: pb.JobSpec) -> None:
    """Check a report against the job that it names.

    Chunks are checked against the layers that a module has, not against the partition: this contract does not hold it.

    Parameters
    ----------
    request
        The request.
    spec
        What the job was registered as; valid.

    Raises
    ------
    InvalidRequestError
        With every violation.
    """
    violations = Violations()
    check_attempt(request, violations)
    check_replica(request.replica, spec, violations)
    check_rank(request.rank, spec, violations)
    check_iteration("iteration", request.iteration, violations)
    no_digest = request.fallback and not request.plan_digest
    if len(request.plan_digest) != DIGEST_BYTES and not no_digest:
        allowed = f"{DIGEST_BYTES} bytes, or empty where the fallback ran"
        violations.add("plan_digest", f"{len(request.plan_digest)} bytes", allowed)
    violations.in_range("peak_memory_bytes", request.peak_memory_bytes, 0, MAX_INT64)
    violations.in_range("stalled_us", request.stalled_us, 0, MAX_TOTAL_US)
    if request.fallback_reason and not request.fallback:
        violations.add("fallback_reason", request.fallback_reason, "empty where fallback is not set")
    if len(request.actions) > MAX_REPORTED_ACTIONS:
        violations.add("actions", f"{len(request.actions)} actions", f"at most {MAX_REPORTED_ACTIONS}")
        violations.raise_if_any()
    known = _Known(spec)
    for n, action in enumerate(request.actions):
        known.check_action(action, request.rank, n, violations)
    violations.raise_if_any()


def shown_reason(reason: str) -> str:
    """Return what is kept of a reason that a rank gives for running the fallback.

    A report is not refused for the sake of a message, so the message is made to fit: one line, at most
    `MAX_REASON_LENGTH` characters, what cannot be printed escaped.
    """
    return shown_text(reason, MAX_REASON_LENGTH)


def shown_text(text: str, longest: int) -> str:
    """Return a text of somebody else as one line of so many characters at most, what cannot be printed escaped."""
    line = " ".join(text[:longest].split())
    return "".join(map(_escaped, line))[:longest]


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


class _Known:
    """What the actions of a job may name."""

    def __init__(self, spec: pb.JobSpec) -> None:
        self.ranks = spec.cluster.ranks
        self.layers: Mapping[str, int] = {
            module.name: sum(run.count for run in module.layers) for module in spec.model.modules
        }
        self.ways: Mapping[str, frozenset[str]] = {
            module.name: frozenset((STORE, *(way.name for run in module.layers for way in run.cost.strategies)))
            for module in spec.model.modules
        }

    def check_action(self, action: pb.Action, rank: int, n: int, violations: Violations) -> None:
        """Collect the violations of the n-th action that a rank reports."""
        path = f"actions[{n}]"
        if action.kind not in _KINDS:
            violations.add(f"{path}.kind", action.kind, "a compute or transfer kind of ActionKind")
            return
        self._check_task(path, "", action.module, action.chunk, action.sub_microbatch, violations)
        violations.in_range(f"{path}.start_us", action.start_us, 0, MAX_TOTAL_US)
        violations.in_range(f"{path}.end_us", action.end_us, max(0, action.start_us), MAX_TOTAL_US)
        if action.kind in _COMPUTE:
            self._check_strategies(action, path, violations)
            return
        consumer = action.consumer_module, action.consumer_chunk, action.consumer_sub_microbatch
        self._check_task(path, "consumer_", *consumer, violations)
        if violations.in_range(f"{path}.peer", action.peer, 0, self.ranks - 1) and action.peer == rank:
            violations.add(f"{path}.peer", action.peer, "another rank than the one that reports")

    def _check_task(
        self, path: str, side: str, module: str, chunk: int, sub_microbatch: int, violations: Violations
    ) -> None:
        if module in self.layers:
            violations.in_range(f"{path}.{side}chunk", chunk, 0, self.layers[module] - 1)
        else:
            violations.add(f"{path}.{side}module", module, f"one of the modules {list(self.layers)}")
        violations.in_range(f"{path}.{side}sub_microbatch", sub_microbatch, 0, _MAX_INT32)

    def _check_strategies(self, action: pb.Action, path: str, violations: Violations) -> None:
        ways = self.ways.get(action.module, frozenset())
        layers = self.layers.get(action.module, 0)
        for i, run in enumerate(action.strategies):
            at = f"{path}.strategies[{i}]"
            if run.name not in ways:
                violations.add(f"{at}.name", run.name, f"a strategy of {action.module!r}: {sorted(ways)}")
            violations.in_range(f"{at}.num_layers", run.num_layers, 1, max(1, layers))
