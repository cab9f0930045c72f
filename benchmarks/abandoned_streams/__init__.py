"""Streams that clients leave, and idle ones: ``python -m benchmarks.abandoned_streams``."""
