"""What holds for the tests of every room: examples that are drawn are the same in each run, and may take their time."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Other examples with each run would let a change fail for what it did not touch. `--hypothesis-profile=default` draws
# new ones.
settings.register_profile(
    "steady", derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
settings.load_profile("steady")
