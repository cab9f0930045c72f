"""What must hold between a job and this process before anything is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.work import chunks_of

from trainer_agent.compiling import STRATEGIES
from trainer_agent.errors import StageInterfaceError, TrainerAgentError
from trainer_agent.stages import Chunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dip.job import Job
    from dip.planner.v1 import planner_pb2 as pb

    from trainer_agent.mesh import Mesh
    from trainer_agent.stages import ModuleHandOffs


def check_setup(
    spec: pb.JobSpec, job: Job, mesh: Mesh, hand_offs: Mapping[str, ModuleHandOffs], strategies: Iterable[str] = ()
) -> None:
    """Check that this executor can run the plans of a job on this mesh.

    Parameters
    ----------
    strategies
        Names of the user's own ways to run a layer.

    Raises
    ------
    TrainerAgentError
        The job has another number of ranks or replicas, or offers strategies that nobody knows how to run.
    StageInterfaceError
        A module's hand-offs are missing, or cannot carry the gradients that they must.
    """
    replicas = spec.cluster.replicas or 1
    if (job.ranks, replicas) != (mesh.ranks, mesh.replicas):
        raise TrainerAgentError(
            f"cluster: {replicas} replicas of {job.ranks} ranks; the mesh has {mesh.replicas} of {mesh.ranks}"
        )
    if taken := sorted(set(strategies).intersection(STRATEGIES)):
        raise TrainerAgentError(f"strategies: {taken}; must be names of your own, not one of {list(STRATEGIES)}")
    known = [*STRATEGIES, *strategies]
    if unknown := sorted(set(hand_offs) ^ set(job.module_index)):
        raise StageInterfaceError(f"hand_offs: {unknown}; must name the modules of the job, {list(job.module_index)}")
    for module in job.modules:
        offered = {name for run in module.runs for name in run.table.strategies}
        if extra := sorted(offered.difference(known)):
            raise TrainerAgentError(
                f"module {module.name}: its layers offer strategies {extra}; this executor runs {known}, and what "
                "Executor(strategies=...) names"
            )
        for hand_off in (hand_offs[module.name].output, hand_offs[module.name].handed_on):
            if module.trains and not hand_off.dtype.is_floating_point:
                raise StageInterfaceError(
                    f"hand_offs[{module.name!r}]: {hand_off.dtype}; must be floating, as its gradients come back"
                )


def chunks_of_rank(job: Job, partition: pb.Partition, rank: int) -> list[Chunk]:
    """List the chunks of one rank, in the order of modules and layers."""
    found: list[Chunk] = []
    for module, chunks in zip(job.modules, chunks_of(job, partition), strict=True):
        last = len(chunks) - 1
        found.extend(
            Chunk(
                module=module.name,
                index=chunk.index,
                rank=rank,
                first_layer=chunk.first_layer,
                num_layers=chunk.num_layers,
                is_first=chunk.index == 0,
                is_last=chunk.index == last,
                is_loss=chunk.index == last and module.index == len(job.modules) - 1,
            )
            for chunk in chunks
            if chunk.rank == rank
        )
    return found
