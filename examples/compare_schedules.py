"""Trains one model twice on the same batches: with the planner's schedules and with 1F1B, in alternating blocks.

Started by examples/demo.py through torchrun. Both runs begin with the same weights and have the same processes, threads
and batches; the order of the two changes from block to block, so that whatever else the machine does meets both alike.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from dip.fallback import fallback_plan
from dip.planner.v1 import planner_pb2 as pb
from torch.utils.data import DataLoader

from examples.vlm.documents import DigitDocuments, DocumentBatch, describe
from examples.vlm.job import profile_target
from examples.vlm.launch import at_least, join_ranks
from examples.vlm.local_plans import LocalPlans
from examples.vlm.model import VlmConfig
from examples.vlm.progress import Progress
from examples.vlm.training import Step, Training
from planner_service.baselines import latency_balanced_partition, one_f_one_b
from trainer_agent import Mesh, TrainerAgent
from trainer_agent.profiler import profile_layers

if TYPE_CHECKING:
    from collections.abc import Iterator
REPRESENTATIVE_BATCHES = 4


def main() -> None:
    """Train in blocks until the time is up."""
    options = parse_arguments()
    mesh = join_ranks("-m examples.compare_schedules")
    shows = mesh.rank == 0
    config = VlmConfig(seed=options.seed)
    documents = DigitDocuments(num_batches=options.iterations, num_microbatches=options.microbatches, seed=options.seed)
    typical = typical_batch(documents)
    if shows:
        print("measuring what the layers cost on this machine (about 10 s)", flush=True)
    spec = profile_layers(profile_target(config, ranks=mesh.ranks), mesh=mesh, repeats=options.repeats)
    agent = TrainerAgent.connect(spec, mesh, representative_batch=typical)
    usual_spec = pb.JobSpec(model=spec.model, cluster=spec.cluster)  # without the options, which are for the planner
    balanced = latency_balanced_partition(usual_spec, typical)
    if shows:
        print(f"planner's partition:        {shown(agent.partition)}")
        print(f"latency-balanced partition: {shown(balanced)}", flush=True)
    trainings = {
        "planned": Training(agent, config),
        # Groups of its own, so that nothing of one run can meet the other's.
        "1f1b": Training(LocalPlans(usual_spec, balanced, Mesh.create(), one_f_one_b), config),
        "text only": Training(LocalPlans(spec, agent.partition, mesh, fallback_plan), config),
    }
    planned_batches = iter(agent.wrap_loader(DataLoader(documents, batch_size=None), describe))
    deadline = time.monotonic() + options.seconds
    with Progress(len(documents), options.record, show=shows) as progress:
        for number, block in enumerate(blocks(len(documents), options.block)):
            batches = {index: documents[index] for index in block}
            steps = run_block(trainings, planned_batches, batches, planned_first=number % 2 == 0)
            show_block(progress, number, steps, mesh)
            if not go_on(mesh, time.monotonic() < deadline):
                break
    agent.close()
    dist.destroy_process_group()


def run_block(
    trainings: dict[str, Training],
    planned_batches: Iterator[DocumentBatch],
    batches: dict[int, DocumentBatch],
    *,
    planned_first: bool,
) -> dict[str, list[Step]]:
    """Train every run on a block's batches, one run after the other."""
    order = ["planned", "1f1b"] if planned_first else ["1f1b", "planned"]
    steps: dict[str, list[Step]] = {}
    for name in order:
        # The planner's run reads its own loader, which tells the planner of the batches to come.
        own = (next(planned_batches) for _ in batches) if name == "planned" else iter(batches.values())
        steps[name] = [trainings[name].step(batch) for batch in own]
    steps["text only"] = [trainings["text only"].step(batch.without_images()) for batch in batches.values()]
    return steps


def show_block(progress: Progress, block: int, steps: dict[str, list[Step]], mesh: Mesh) -> None:
    """Print the planned iterations of a block, and keep all of them, with what each rank alone knows."""
    for name in ("planned", "1f1b"):
        mine = [(step.waited_us, step.actions_us) for step in steps[name]]
        of_ranks: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(mesh.ranks)]
        dist.all_gather_object(of_ranks, mine, group=mesh.world)
        for place, step in enumerate(steps[name]):
            fields = asdict(step) | {
                "waited_us": [of_rank[place][0] for of_rank in of_ranks],
                "actions_us": [of_rank[place][1] for of_rank in of_ranks],
            }
            text_only_loss = steps["text only"][place].loss
            progress.record(run=name, block=block, text_only_loss=text_only_loss, **fields)
            if name == "planned":
                progress.iteration(step, text_only_loss=text_only_loss)
    pairs = zip(steps["planned"], steps["1f1b"], strict=True)
    times = [(planned.step_us / 1000, usual.step_us / 1000) for planned, usual in pairs]
    progress.say(
        f"  block {block}: the same {len(times)} batches took {sum(one for one, _ in times):.0f} ms planned, "
        f"{sum(two for _, two in times):.0f} ms under 1F1B"
    )


def typical_batch(documents: DigitDocuments) -> pb.Batch:
    """Metadata of the first few batches together: what both partitions are chosen for."""
    typical = describe(documents[0])
    for number in range(1, min(REPRESENTATIVE_BATCHES, len(documents))):
        typical.microbatches.extend(describe(documents[number]).microbatches)
    return typical


def blocks(num_batches: int, size: int) -> Iterator[range]:
    """Cut the numbers of batches into blocks of a size; the last may be smaller."""
    for start in range(0, num_batches, size):
        yield range(start, min(start + size, num_batches))


def go_on(mesh: Mesh, mine: bool) -> bool:
    """Let rank 0 decide for all ranks whether another block is trained."""
    decision = torch.tensor([mine])
    dist.broadcast(decision, src=0, group=mesh.world)
    return bool(decision)


def shown(partition: pb.Partition) -> str:
    """Say in a line which rank holds what."""
    ranks: dict[int, list[str]] = {}
    for chunk in partition.chunks:
        last = chunk.first_layer + chunk.num_layers - 1
        ranks.setdefault(chunk.rank, []).append(f"{chunk.module} {chunk.first_layer}-{last}")
    return "; ".join(f"rank {rank}: {', '.join(ranks[rank])}" for rank in sorted(ranks))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Compares planned schedules with 1F1B; started by examples/demo.py.")
    parser.add_argument("--iterations", type=at_least(1), default=120, help="batches at most (%(default)s)")
    parser.add_argument("--seconds", type=float, default=180, help="no block begins after this long (%(default)s)")
    parser.add_argument("--block", type=at_least(1), default=4, help="batches of a block (%(default)s)")
    parser.add_argument("--microbatches", type=at_least(1), default=8, help="microbatches of a batch (%(default)s)")
    parser.add_argument("--repeats", type=at_least(1), default=5, help="measurements of each cost (%(default)s)")
    parser.add_argument("--seed", type=at_least(0), default=0, help="of weights and data (%(default)s)")
    parser.add_argument("--record", type=Path, required=True, help="where every iteration is written, as JSON lines")
    return parser.parse_args()


if __name__ == "__main__":
    main()
