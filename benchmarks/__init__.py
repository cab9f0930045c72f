"""Measurements, each a command that prints JSON."""
