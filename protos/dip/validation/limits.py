"""The largest values that a request may hold: far above any real job, far below what numbers overflow at.

Limits of single fields keep a hostile request from claiming work that a few bytes can ask for; the limits of sums
(see :mod:`dip.validation.magnitude`) keep every time and size of a plan a whole number that int64 holds.
"""

MAX_VIOLATIONS = 50
"""Violations that one error lists; the search for more ends there."""

MAX_NAME_LENGTH = 128
"""Characters of the name of a module or strategy."""
MAX_JOB_ID_LENGTH = 256
"""Characters of a job's identifier."""

MAX_MODULES = 64
MAX_LAYERS = 10_000
"""Layers of one module, all runs together."""
MAX_COST_POINTS = 1024
MAX_STRATEGIES = 16
"""Memory strategies of one layer, "store" not counted."""

MAX_RANKS = 1024
MAX_REPLICAS = 65_536
MIN_RANK_SPEED = 1e-3
MAX_RANK_SPEED = 1e3

MAX_MICROBATCHES = 65_536
MAX_INSTANCES = 1_000_000
"""Instances of one batch, all modules together."""
MAX_UNITS = 2**31 - 1
"""Units of one microbatch in one module, so that the sum of their squares fits an int64."""

MAX_BUDGET_MS = 24 * 3_600_000
MAX_EVALUATIONS = 10**12
MAX_REPORTED_ACTIONS = 1_000_000
MAX_RECENT_ITERATIONS = 64
"""Iterations of each replica that a job's status may tell of."""
MAX_REASON_LENGTH = 400
"""Characters that are kept of the reason for which a rank ran the fallback."""

MAX_COST_US = 1e12
"""A measured time of one layer, or its part for each squared unit: eleven days."""
MAX_LATENCY_US = 10**9
MAX_BYTES = 2**53
"""A size of one layer: 8 PiB, the largest that a double holds exactly."""
MAX_TOTAL_US = 2**53
"""The work and the transfers of one batch, in the worst order: 285 years."""
MAX_TOTAL_BYTES = 2**61
"""What all layers hold, what all tasks of one batch keep together, and what crosses links."""
MAX_INT64 = 2**63 - 1
