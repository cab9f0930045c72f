"""What runs beside the training loop on every rank: takes plans, agrees on them, runs them."""

from dip.connecting import forking as forking

from trainer_agent.agent import TrainerAgent
from trainer_agent.errors import TrainerAgentError
from trainer_agent.executor import Executor
from trainer_agent.measuring import StepResult
from trainer_agent.mesh import Mesh
from trainer_agent.settings import AgentSettings
from trainer_agent.stages import (
    Chunk,
    ChunkModule,
    GatheredResults,
    HandOff,
    Instance,
    ModuleHandOffs,
    Results,
    StageTask,
    Strategy,
)
from trainer_agent.startup import StartError
from trainer_agent.stats import AgentStats

__all__ = [
    "AgentSettings",
    "AgentStats",
    "Chunk",
    "ChunkModule",
    "Executor",
    "GatheredResults",
    "HandOff",
    "Instance",
    "Mesh",
    "ModuleHandOffs",
    "Results",
    "StageTask",
    "StartError",
    "StepResult",
    "Strategy",
    "TrainerAgent",
    "TrainerAgentError",
]
