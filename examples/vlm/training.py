"""One training run among several in a process: an executor, its optimizer, and what each step came to."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.optim import AdamW
from torch.optim.lr_scheduler import LinearLR

from examples.vlm.documents import loss_weight
from examples.vlm.local_plans import LocalPlans
from trainer_agent import Executor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from examples.vlm.documents import DocumentBatch
    from examples.vlm.model import VlmConfig
    from trainer_agent import StepResult
    from trainer_agent.plans import PlanSource

LEARNING_RATES, WARM_UP_STEPS = {"vision": 1e-3, "language": 2e-3}, 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """What one iteration came to, on all ranks but for ``waited_us`` and ``actions_us``.

    Parameters
    ----------
    iteration
        Its number in this run.
    loss
        Mean over the words that are predicted.
    planned_us, measured_us
        Makespan of the schedule, and how long its actions took.
    step_us
        The whole step as this rank's clock saw it: the wait for the schedule, the actions, the optimizer.
    bubble_share
        Share of the ranks' time within ``measured_us`` in which they did not compute.
    fallback
        Whether the fixed fallback ran.
    waited_us
        How long this rank waited for its schedule.
    actions_us
        What each compute action of this rank took.
    """

    iteration: int
    loss: float
    planned_us: int
    measured_us: int
    step_us: int
    bubble_share: float
    fallback: bool
    waited_us: int
    actions_us: tuple[int, ...]

    @classmethod
    def of(cls, result: StepResult, *, loss: float, step_us: int) -> Step:
        """Put together what the executor and a clock around it say."""
        return cls(
            iteration=result.iteration,
            loss=loss,
            planned_us=result.planned_us,
            measured_us=result.measured_us,
            step_us=step_us,
            bubble_share=result.bubble_share,
            fallback=result.fallback,
            waited_us=result.waited_us,
            actions_us=tuple(action.end_us - action.start_us for action in result.report.actions),
        )


def make_optimizer(named: Iterable[tuple[str, nn.Parameter]]) -> tuple[AdamW, LinearLR]:
    """Return AdamW and the warm-up of its learning rates, whose ``step`` comes after each of the optimizer's.

    Parameters
    ----------
    named
        This rank's parameters, as `Executor.named_parameters` names them: ``<module>.<name>``.
    """
    of_module: dict[str, list[nn.Parameter]] = {module: [] for module in LEARNING_RATES}
    for name, parameter in named:
        of_module[name.partition(".")[0]].append(parameter)
    groups = [{"params": held, "lr": LEARNING_RATES[module]} for module, held in of_module.items() if held]
    optimizer = AdamW(groups, betas=(0.9, 0.98))
    return optimizer, LinearLR(optimizer, start_factor=1 / WARM_UP_STEPS, total_iters=WARM_UP_STEPS)


class Training:
    """A model in training.

    Parameters
    ----------
    source
        Where its schedules come from: an agent, or `LocalPlans`.
    config
        The model; equal configurations start from equal weights, whatever the partition.
    """

    def __init__(self, source: PlanSource, config: VlmConfig) -> None:
        self._source = source
        self._executor = Executor(source, config.build_chunk, hand_offs=config.hand_offs(), loss_weight=loss_weight)
        self._optimizer, self._warm_up = make_optimizer(self._executor.named_parameters())

    def step(self, batch: DocumentBatch) -> Step:
        """Train on one batch."""
        if isinstance(self._source, LocalPlans):
            self._source.prepare(batch)
        start_ns = time.perf_counter_ns()
        result = self._executor.step(batch)
        self._optimizer.step()
        self._optimizer.zero_grad()
        loss = result.loss  # waits for the other ranks: the clock stops when all of them are done
        step_us = (time.perf_counter_ns() - start_ns) // 1000
        self._warm_up.step()
        return Step.of(result, loss=loss, step_us=step_us)
