"""Runs any plan in virtual time: the judge of every comparison."""

from planner_service.simulate.errors import (
    BrokenActionError,
    BrokenPartsError,
    MissingTaskError,
    MissingTransferError,
    OverMemoryError,
    SimulationError,
    WaitsForItselfError,
)
from planner_service.simulate.noise import lognormal_noise, slow_ranks
from planner_service.simulate.result import RankUse, Simulation, TaskRun
from planner_service.simulate.run import simulate

__all__ = [
    "BrokenActionError",
    "BrokenPartsError",
    "MissingTaskError",
    "MissingTransferError",
    "OverMemoryError",
    "RankUse",
    "Simulation",
    "SimulationError",
    "TaskRun",
    "WaitsForItselfError",
    "lognormal_noise",
    "simulate",
    "slow_ranks",
]
