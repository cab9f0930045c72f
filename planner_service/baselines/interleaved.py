"""Interleaved 1F1B: Megatron-LM's order (Narayanan et al. 2021, section 2.2), one forward and one backward in turn.

Stages are placed in loops: stage s on rank s mod P. Microbatches go in groups: a group passes through a rank's first
stage, then its second, and so on, then the next group does. With one stage a rank this is plain 1F1B.
"""

from __future__ import annotations

from dip.lowering import Phase

from planner_service.baselines.order_table import OrderTable, Step


def interleaved_1f1b(ranks: int, microbatches: int, *, stages_of_rank: int) -> OrderTable:
    """Order of all ranks.

    As in Megatron-LM (``core/pipeline_parallel/schedules.py``), rank r runs ``2 (P - 1 - r) + (v - 1) N`` forwards
    first (``P - 1 - r`` where v = 1), N being the size of a group. Every group is to have at least P microbatches,
    so where they do not divide into groups of P there are as many groups as can have P, of sizes that differ by one at
    most.

    Parameters
    ----------
    ranks
        P.
    microbatches
        At least 1.
    stages_of_rank
        v.
    """
    groups = _groups(ranks, microbatches)
    forwards = [(loop, m) for group in groups for loop in range(stages_of_rank) for m in group]
    backwards = [(stages_of_rank - 1 - loop, m) for loop, m in forwards]
    steps: list[tuple[Step, ...]] = []
    for rank in range(ranks):
        ahead = ranks - 1 - rank
        if stages_of_rank > 1:
            ahead = 2 * ahead + (stages_of_rank - 1) * len(groups[0])
        ahead = min(ahead, len(forwards))
        order = [Step(Phase.FORWARD, loop * ranks + rank, m) for loop, m in forwards[:ahead]]
        for turn, (loop, m) in enumerate(backwards):
            if ahead + turn < len(forwards):
                next_loop, next_m = forwards[ahead + turn]
                order.append(Step(Phase.FORWARD, next_loop * ranks + rank, next_m))
            order.append(Step(Phase.BACKWARD, loop * ranks + rank, m))
        steps.append(tuple(order))
    return OrderTable(placement=tuple(s % ranks for s in range(ranks * stages_of_rank)), steps=tuple(steps))


def _groups(ranks: int, microbatches: int) -> list[range]:
    many = max(1, microbatches // ranks)
    size, larger = divmod(microbatches, many)
    ends = [(g + 1) * size + min(g + 1, larger) for g in range(many)]
    return [range(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
