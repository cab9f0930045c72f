"""Cutting each microbatch into sub-microbatches."""
