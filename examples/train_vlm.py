"""Trains a small vision-language model on a pipeline whose schedules are searched for each batch.

    .venv/bin/dip serve &
    DIP_PLANNER_ENDPOINT=127.0.0.1:50061 .venv/bin/torchrun --standalone --nproc-per-node 2 examples/train_vlm.py

The model and the data are in examples/vlm; what DIP Planner asks of a training is all in `main`.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

import torch.distributed as dist
from dip.fallback import fallback_plan
from torch.utils.data import DataLoader

from examples.vlm.documents import DigitDocuments, describe, loss_weight
from examples.vlm.job import profile_target
from examples.vlm.launch import at_least, join_ranks
from examples.vlm.local_plans import LocalPlans
from examples.vlm.model import VlmConfig
from examples.vlm.progress import Progress
from examples.vlm.training import Step, Training, make_optimizer
from trainer_agent import Executor, TrainerAgent
from trainer_agent.profiler import profile_layers


def main() -> None:
    """Train."""
    options = parse_arguments()
    mesh = join_ranks("examples/train_vlm.py")
    config = VlmConfig(seed=options.seed)
    documents = DigitDocuments(num_batches=options.iterations, num_microbatches=options.microbatches, seed=options.seed)

    # What the layers cost here, then where they live: rank 0 measures and registers, all ranks are told.
    say = print if mesh.rank == 0 else _silent
    say("measuring what the layers cost on this machine (about 10 s)")
    target = profile_target(config, ranks=mesh.ranks)
    target.spec.options.split_backward = options.split_backward
    spec = profile_layers(target, mesh=mesh, repeats=options.repeats)
    agent = TrainerAgent.connect(spec, mesh, representative_batch=describe(documents[0]))
    executor = Executor(agent, config.build_chunk, hand_offs=config.hand_offs(), loss_weight=loss_weight)
    optimizer, warm_up = make_optimizer(executor.named_parameters())

    # The same model without eyes, for comparison; its batches are small, and it runs the fixed schedule.
    text_only = Training(LocalPlans(spec, agent.partition, mesh, fallback_plan), config)

    losses: list[tuple[float, float]] = []
    loader = agent.wrap_loader(DataLoader(documents, batch_size=None), describe)
    with Progress(len(documents), options.record, show=mesh.rank == 0) as progress:
        for batch in loader:
            start_ns = time.perf_counter_ns()
            result = executor.step(batch)
            optimizer.step()
            optimizer.zero_grad()
            warm_up.step()
            step = Step.of(result, loss=result.loss, step_us=(time.perf_counter_ns() - start_ns) // 1000)
            blind = text_only.step(batch.without_images())
            progress.iteration(step, text_only_loss=blind.loss)
            progress.record(**asdict(step), text_only_loss=blind.loss)
            losses.append((step.loss, blind.loss))

    stats = agent.stats
    seeing, blind_too = (fmean(pair[run] for pair in losses[-max(1, len(losses) // 10) :]) for run in (0, 1))
    say(f"loss {losses[0][0]:.3f} -> {seeing:.3f}; the same model without the images: {blind_too:.3f}")
    say(f"{stats.iterations - stats.fallbacks} of {stats.iterations} iterations ran a plan made for their batch")
    if stats.fallbacks:
        say(f"the last that did not: {stats.last_fallback_reason}")
    agent.close()
    dist.destroy_process_group()


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Trains a small vision-language model; started by torchrun.")
    parser.add_argument("--iterations", type=at_least(1), default=100, help="batches to train on (%(default)s)")
    parser.add_argument("--microbatches", type=at_least(1), default=8, help="microbatches of a batch (%(default)s)")
    parser.add_argument("--repeats", type=at_least(1), default=5, help="measurements of each cost (%(default)s)")
    parser.add_argument("--split-backward", action="store_true", help="allow backwards in two halves")
    parser.add_argument("--seed", type=at_least(0), default=0, help="of weights and data (%(default)s)")
    parser.add_argument("--record", type=Path, default=Path("runs/train_vlm.jsonl"), help="JSON lines (%(default)s)")
    return parser.parse_args()


def _silent(line: str) -> None:
    pass


if __name__ == "__main__":
    main()
