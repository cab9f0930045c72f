"""Load on one planner: ``python -m benchmarks.load``."""
