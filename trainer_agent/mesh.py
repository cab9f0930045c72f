"""Which process is which: pipeline ranks, replicas, and the process groups between them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from trainer_agent.settings import AgentSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    Group = dist.ProcessGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class Mesh:
    """One process's place among the ``replicas * ranks`` processes of a job, and the groups that it talks in.

    Global rank ``replica * ranks + rank`` is pipeline rank ``rank`` of replica ``replica``. Made by `create`.

    Parameters
    ----------
    rank, ranks
        This process's pipeline rank, and their number in one replica.
    replica, replicas
        This process's replica, and their number.
    device
        Where chunks live and tensors are received.
    timeout
        How long any wait for another process may take.
    world
        All processes, on the CPU.
    pipeline, pipeline_control
        The ranks of this replica: for tensors (NCCL where the device is CUDA), and on the CPU.
    peers, peers_control
        This rank's counterparts in all replicas, in the order of replicas: for gradients, and on the CPU.
    """

    rank: int
    ranks: int
    replica: int
    replicas: int
    device: torch.device
    timeout: timedelta
    world: Group
    pipeline: Group
    pipeline_control: Group
    peers: Group
    peers_control: Group

    @classmethod
    def create(
        cls,
        *,
        ranks: int | None = None,
        replicas: int = 1,
        device: torch.device | str = "cpu",
        timeout_s: float | None = None,
    ) -> Mesh:
        """Make the groups of all processes; collective, after ``torch.distributed.init_process_group``.

        Parameters
        ----------
        ranks
            Pipeline ranks of a replica; all processes divided by ``replicas`` where not given.
        replicas
            Number of replicas, ``cluster.replicas`` of the job spec.
        device
            This process's device.
        timeout_s
            How long any wait may take, in seconds; as ``DIP_STEP_TIMEOUT_S`` says where not given.

        Raises
        ------
        ValueError
            There is no process group yet, or the processes do not fill ``replicas`` replicas of ``ranks`` ranks.
        """
        if not dist.is_initialized():
            raise ValueError(
                "torch.distributed has no process group: start the program with torchrun, and call "
                "torch.distributed.init_process_group before Mesh.create"
            )
        world_size, global_rank = dist.get_world_size(), dist.get_rank()
        if replicas < 1 or world_size % replicas:
            raise ValueError(f"replicas: {replicas}; must divide the {world_size} processes of the job")
        ranks = world_size // replicas if ranks is None else ranks
        if ranks * replicas != world_size:
            raise ValueError(
                f"ranks: {ranks}; {replicas} replicas of them must be the {world_size} processes of the job"
            )
        timeout_s = AgentSettings.from_environment().step_timeout_s if timeout_s is None else timeout_s
        if not timeout_s > 0:
            raise ValueError(f"timeout_s: {timeout_s}; must be above 0")
        device, timeout = torch.device(device), timedelta(seconds=timeout_s)
        replica, rank = divmod(global_rank, ranks)

        def make(members: Sequence[Sequence[int]], mine: int, backend: str) -> Group:
            # Every process makes every group, in the same order, as torch.distributed wants it.
            groups: list[Group] = [dist.new_group(list(one), timeout=timeout, backend=backend) for one in members]
            return groups[mine]

        pipelines = [range(r * ranks, (r + 1) * ranks) for r in range(replicas)]
        columns = [range(p, world_size, ranks) for p in range(ranks)]
        fast = "nccl" if device.type == "cuda" else "gloo"
        return cls(
            rank=rank,
            ranks=ranks,
            replica=replica,
            replicas=replicas,
            device=device,
            timeout=timeout,
            world=make([range(world_size)], 0, "gloo"),
            pipeline=make(pipelines, replica, fast),
            pipeline_control=make(pipelines, replica, "gloo"),
            peers=make(columns, rank, fast),
            peers_control=make(columns, rank, "gloo"),
        )
