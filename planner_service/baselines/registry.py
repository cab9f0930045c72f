"""The baselines by name."""

from __future__ import annotations

from functools import partial

from planner_service.baselines.baseline import Baseline
from planner_service.baselines.interleaved import interleaved_1f1b
from planner_service.baselines.latency_balanced import latency_balanced
from planner_service.baselines.megatron import weight_balanced
from planner_service.baselines.optimus import optimus
from planner_service.baselines.separated import separated_interleaved

_ONE = partial(interleaved_1f1b, stages_of_rank=1)
_TWO = partial(interleaved_1f1b, stages_of_rank=2)

BASELINES: dict[str, Baseline] = {
    baseline.name: baseline
    for baseline in (
        Baseline(
            name="megatron",
            description="Megatron-LM: one stage a rank of about equal weights, 1F1B",
            candidates=partial(weight_balanced, make_table=_ONE),
        ),
        Baseline(
            name="megatron-interleaved",
            description="Megatron-LM: two stages a rank of about equal weights, interleaved 1F1B",
            candidates=partial(weight_balanced, make_table=_TWO),
        ),
        Baseline(
            name="latency-balanced",
            description="one stage a rank of about equal latency, 1F1B: nnScaler's static plan",
            candidates=partial(latency_balanced, make_table=_ONE),
        ),
        Baseline(
            name="latency-balanced-interleaved",
            description="two stages a rank of about equal latency, interleaved 1F1B",
            candidates=partial(latency_balanced, make_table=_TWO),
        ),
        Baseline(
            name="separated-interleaved",
            description="one or two segments of its own for each module, interleaved 1F1B over all of them",
            candidates=separated_interleaved,
        ),
        Baseline(
            name="optimus",
            description="Optimus-like: all encoder forwards, then 1F1B of the backbone, encoder backwards last",
            candidates=optimus,
        ),
    )
}
"""Those that need nothing but the planner; ``benchmarks.torch_orders`` has PyTorch's own orders."""
