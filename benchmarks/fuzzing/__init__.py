"""Inputs of every kind for every method of a planner: ``python -m benchmarks.fuzzing``."""
