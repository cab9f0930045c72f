"""Faults at random moments in a real training run: ``python -m benchmarks.faults``."""
