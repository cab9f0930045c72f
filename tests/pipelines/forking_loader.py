"""A training process whose data loader forks workers while the agent's stream is open; run as a program by a test."""

from __future__ import annotations

import sys
import tempfile

import cases
import torch.distributed as dist
from torch.utils.data import DataLoader
from unhurried import unhurry
from waiting import PATIENCE_S

from trainer_agent import AgentSettings, Mesh, TrainerAgent

EPOCHS, BATCHES = 4, 6


def main(endpoint: str) -> None:
    """Go through some epochs; each forks workers anew."""
    with tempfile.TemporaryDirectory() as directory:
        dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=0, world_size=1)
        settings = AgentSettings.from_environment(
            {}, endpoints=endpoint, schedule_wait_ms=int(PATIENCE_S * 1000), connect_wait_s=PATIENCE_S
        )
        agent = TrainerAgent.connect(cases.job(ranks=1), Mesh.create(timeout_s=4 * PATIENCE_S), settings=settings)
        loader = DataLoader(list(range(BATCHES)), batch_size=None, num_workers=2, multiprocessing_context="fork")
        planned = 0
        for _ in range(EPOCHS):
            for batch in agent.wrap_loader(loader, lambda _: cases.batch(cases.documents(2))):
                planned += agent.take(batch).plan is not None
        agent.close()
        dist.destroy_process_group()
    print(f"planned {planned}, reconnected {agent.stats.reconnects}")


if __name__ == "__main__":
    unhurry()
    main(sys.argv[1])
