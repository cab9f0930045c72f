"""Every metric of the planner: name, type, labels, help. Rooms change them through the functions of this package.

Names follow Prometheus' conventions: base units, ``_total`` for what only grows. A job is named by the label
``job_id``, as ``job`` is what Prometheus calls the target that it reads. No other label holds what a client chose.
"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)

disable_created_metrics()  # type: ignore[no-untyped-call]

REGISTRY: Final = CollectorRegistry()
"""What is served: of this process alone, as solver processes measure nothing."""

JOB: Final = "job_id"

_CALL_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SEARCH_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
_GAP = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1)
_LAG_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)

# ------------------------------------------------------------------------------------------------------------- calls

CALLS: Final = Counter(
    "dip_calls",
    "Calls that ended, by method of the contract and gRPC status code. Whatever is not OK or CANCELLED was refused: "
    "UNAUTHENTICATED and PERMISSION_DENIED tell of tokens, RESOURCE_EXHAUSTED of limits.",
    ("method", "code"),
    registry=REGISTRY,
)
CALL_SECONDS: Final = Histogram(
    "dip_call_duration_seconds",
    "How long calls took to answer, streams left out.",
    ("method",),
    buckets=_CALL_S,
    registry=REGISTRY,
)
RECEIVED_BYTES: Final = Counter(
    "dip_received_bytes", "Serialized requests, without gRPC's own frames.", ("method",), registry=REGISTRY
)
SENT_BYTES: Final = Counter(
    "dip_sent_bytes", "Serialized answers, without gRPC's own frames.", ("method",), registry=REGISTRY
)
OPEN_STREAMS: Final = Gauge("dip_open_streams", "Streams of schedules that are open: one a rank.", registry=REGISTRY)
SENT_SCHEDULES: Final = Counter(
    "dip_sent_schedules",
    "What was streamed to ranks: a plan's schedule, or the reason why there is none.",
    ("result",),
    registry=REGISTRY,
)

# ---------------------------------------------------------------------------------------------------------- planning

SETTLED_BATCHES: Final = Counter(
    "dip_settled_batches",
    "Outcomes of batches that this planner wrote. Planned: search; interrupted, the best plan of a search that was "
    "ended from outside; fixed, the fixed schedule: no search, or it failed; remembered, found before, and asked for "
    "again by a store that had lost it. Unplanned: late, the iteration had been run; refused, it breaks the contract "
    "or cannot fit; failed, the search and the fixed schedule did; abandoned, too many planners ended over it.",
    ("outcome",),
    registry=REGISTRY,
)
BATCH_SECONDS: Final = Histogram(
    "dip_batch_duration_seconds",
    "From the moment when this planner claimed a batch until its outcome was stored.",
    buckets=_SEARCH_S,
    registry=REGISTRY,
)
SOLVE_SECONDS: Final = Histogram(
    "dip_solve_duration_seconds",
    "How long a solver process had a task, however that ended: a plan (search, split, lowering) or a partition.",
    ("task",),
    buckets=_SEARCH_S,
    registry=REGISTRY,
)
SEARCH_SECONDS: Final = Histogram(
    "dip_search_duration_seconds",
    "Search time of plans that a search found, as the plan says: one that was found before tells of that search.",
    buckets=_SEARCH_S,
    registry=REGISTRY,
)
GAP_RATIO: Final = Histogram(
    "dip_plan_gap_ratio",
    "How far plans that a search found are above their proven lower bound: makespan / bound - 1.",
    buckets=_GAP,
    registry=REGISTRY,
)

# --------------------------------------------------------------------------------------------------------- the queue

QUEUE_BATCHES: Final = Gauge(
    "dip_queue_batches",
    "Batches that wait in the store and that no planner has. Each planner tells of the whole store: of planners that "
    "share one take max(), not sum().",
    registry=REGISTRY,
)
QUEUE_CLAIMED: Final = Gauge(
    "dip_queue_claimed_batches",
    "Batches without an outcome that a planner has. Of the whole store: max(), not sum().",
    registry=REGISTRY,
)
QUEUE_AGE: Final = Gauge(
    "dip_queue_oldest_age_seconds",
    "Since when the oldest batch waits that no planner has; 0 where none does. Of the whole store: max(), not sum().",
    registry=REGISTRY,
)

# ---------------------------------------------------------------------------------------------------- jobs and ranks

JOB_LEAD: Final = Gauge(
    "dip_job_lead_iterations",
    "Iterations that have an outcome beyond the last one that ranks reported, of the replica that has the fewest. 0 or "
    "less: ranks wait for plans or run without. From the store, told by each planner that the job's trainers have "
    "called: min by (job_id).",
    (JOB,),
    registry=REGISTRY,
)
JOB_KEPT_BYTES: Final = Gauge(
    "dip_job_kept_bytes",
    "What plans, and reports, of a job take in the store. Told by each planner that its trainers have called: "
    "max by (job_id, kind).",
    (JOB, "kind"),
    registry=REGISTRY,
)
REPORTS: Final = Counter(
    "dip_reports",
    "Iterations that ranks reported to this planner, by what they ran: plan, or fallback, the fixed schedule.",
    (JOB, "ran"),
    registry=REGISTRY,
)
STALLED_SECONDS: Final = Counter(
    "dip_stalled_seconds",
    "How long ranks waited for schedules before iterations could start, as they reported to this planner.",
    (JOB,),
    registry=REGISTRY,
)

# ------------------------------------------------------------------------------------------------- solver processes

WORKERS: Final = Gauge("dip_workers", "Solver processes that there should be.", registry=REGISTRY)
READY_WORKERS: Final = Gauge("dip_ready_workers", "Solver processes that are started, busy or not.", registry=REGISTRY)
BUSY_WORKERS: Final = Gauge("dip_busy_workers", "Solver processes that have a task.", registry=REGISTRY)
WORKER_ENDS: Final = Counter(
    "dip_worker_restarts",
    "Solver processes that ended and are started anew, by why: overran (its time, and was killed), died (a crash, or "
    "its memory limit), cancelled (killed because nobody wanted its task any more), unready (it did not come up).",
    ("reason",),
    registry=REGISTRY,
)

# --------------------------------------------------------------------------------------------------------- the store

STORE_AVAILABLE: Final = Gauge(
    "dip_store_available",
    "Whether the store answers (1) or not (0); while it does not, the planner is not ready.",
    registry=REGISTRY,
)
STORE_ERRORS: Final = Counter(
    "dip_store_errors",
    "Questions to a Redis without the answer that was asked for: away (none, or none in time), full, unusable "
    "(password, rights, TLS).",
    ("error",),
    registry=REGISTRY,
)
STORE_SECONDS: Final = Histogram(
    "dip_store_request_duration_seconds",
    "How long a Redis took to answer, the wait for a connection included. A store in memory answers at once.",
    buckets=_CALL_S,
    registry=REGISTRY,
)

# ------------------------------------------------------------------------------------------------------- the process

LOOP_LAG: Final = Histogram(
    "dip_event_loop_lag_seconds",
    "How much later than asked for the event loop runs a task, measured ten times a second.",
    buckets=_LAG_S,
    registry=REGISTRY,
)
CERTIFICATE_START: Final = Gauge(
    "dip_tls_certificate_start_timestamp_seconds",
    "When the certificate that the planner shows to trainers begins, in seconds since 1970; not there without TLS.",
    ("certificate",),
    registry=REGISTRY,
)
CERTIFICATE_EXPIRY: Final = Gauge(
    "dip_tls_certificate_expiry_timestamp_seconds",
    "When the certificate that the planner shows to trainers ends, in seconds since 1970; not there without TLS.",
    ("certificate",),
    registry=REGISTRY,
)
BUILD: Final = Info("dip_build", "The planner's version, and Python's.", registry=REGISTRY)

ProcessCollector(registry=REGISTRY)


def _version() -> str:
    try:
        return version("dip-planner")
    except PackageNotFoundError:  # run from a folder that nobody installed
        return "unknown"


BUILD.info({"version": _version(), "python": platform.python_version()})
