"""Rules of the work: each sub-microbatch goes through each chunk as often as it must, as long as that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from planner_service.check.costs import STORE, UnknownStrategyError, chunk_cost, duration_us, whole_bytes
from planner_service.check.tasks import BACKWARD, FORWARD, INPUT_HALF, WEIGHT_HALF, Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.check.costs import Cost
    from planner_service.check.cut import Cut
    from planner_service.check.facts import Facts, ModuleFacts
    from planner_service.check.partition import Layout
    from planner_service.check.tasks import Schedules

TOLERANCE_US = 1
"""Sums of floats may be rounded up to another microsecond where they are added in another order."""


class Kept(NamedTuple):
    """Bytes that a task keeps from its forward on, and between the halves of a split backward."""

    stored: int
    split: int


def check_durations(
    facts: Facts, layout: Layout, cut: Cut, schedules: Schedules, faults: list[str]
) -> dict[tuple[int, int], Kept]:
    """Collect tasks that are missing, not needed or of another duration; return what each (sub, chunk) keeps."""
    needed: set[Task] = set()
    kept: dict[tuple[int, int], Kept] = {}
    for key, sub in cut.subs.items():
        module = facts.modules[sub.module]
        for index, chunk in enumerate(layout[sub.module]):
            tasks = _tasks_of(module, key, index, facts.split_backward, schedules)
            needed.update(tasks)
            missing = [task for task in tasks if task not in schedules.tasks]
            faults.extend(f"missing: {task}" for task in missing)
            if missing:
                continue
            layers = module.layers[chunk.first_layer : chunk.first_layer + chunk.num_layers]
            try:
                ways = _ways_of(tasks, len(layers), schedules)
                cost = chunk_cost(layers, ways, sub.total, sub.squares)
            except (UnknownStrategyError, _StrategiesError) as error:
                faults.append(f"sub-microbatch {key}, chunk {index}: {error}")
                continue
            kept[key, index] = Kept(whole_bytes(cost.stored_bytes), whole_bytes(cost.split_bytes))
            for task in tasks:
                _check_duration(task, cost, module.has_weight_half, facts.speed[chunk.rank], schedules, faults)
    faults.extend(f"not needed: {task}" for task in schedules.tasks.keys() - needed)
    return kept


class _StrategiesError(Exception):
    """The strategies of a task do not fit its layers or its other passes."""


def _tasks_of(module: ModuleFacts, sub: int, chunk: int, split: bool, schedules: Schedules) -> list[Task]:
    """List the tasks that a sub-microbatch needs on a chunk, given that a backward may be whole or split."""
    tasks = [Task(FORWARD, sub, chunk)]
    if not module.has_backward:
        return tasks
    whole = Task(BACKWARD, sub, chunk)
    if whole in schedules.tasks or not split:
        return [*tasks, whole]
    tasks.append(Task(INPUT_HALF, sub, chunk))
    if module.has_weight_half:
        tasks.append(Task(WEIGHT_HALF, sub, chunk))
    return tasks


def _ways_of(tasks: Sequence[Task], num_layers: int, schedules: Schedules) -> list[str]:
    """Return the strategy of each layer, the same in forward, backward and input half."""
    first, *others = (
        _ways(schedules.tasks[task].action.strategies, num_layers) for task in tasks if task.kind != WEIGHT_HALF
    )
    if any(other != first for other in others):
        raise _StrategiesError("forward and backward have other strategies")
    return first


def _ways(strategies: Sequence[pb.StrategyRun], num_layers: int) -> list[str]:
    covered = sum(max(0, run.num_layers) for run in strategies)
    if not covered:
        return [STORE] * num_layers
    if covered != num_layers:
        raise _StrategiesError(f"strategies for {covered} layers, the chunk has {num_layers}")
    return [run.name for run in strategies for _ in range(run.num_layers)]


def _check_duration(
    task: Task, cost: Cost, has_weight_half: bool, speed: float, schedules: Schedules, faults: list[str]
) -> None:
    weight_us = cost.weight_us if has_weight_half else 0.0
    work_us: dict[int, float] = {
        FORWARD: cost.forward_us,
        BACKWARD: cost.input_us + weight_us,
        INPUT_HALF: cost.input_us,
        WEIGHT_HALF: weight_us,
    }
    action = schedules.tasks[task].action
    took, due = action.end_us - action.start_us, duration_us(work_us[task.kind], speed)
    if took < 1 or abs(took - due) > TOLERANCE_US:
        faults.append(f"{task} takes {took} us, its layers cost {due}")
