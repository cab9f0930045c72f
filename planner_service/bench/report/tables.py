"""The tables of the report by name: what `<!-- bench:NAME -->` in a Markdown file stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner_service.bench.report.against import (
    baselines_table,
    large_table,
    memory_table,
    mfu_table,
    steps_table,
    waves_table,
)
from planner_service.bench.report.published import published_table
from planner_service.bench.report.searching import (
    engines_table,
    growth_table,
    latency_table,
    ours_table,
    progress_table,
    sizes_table,
)
from planner_service.bench.report.targets import targets_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner_service.bench.result import Result


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table of the report.

    Parameters
    ----------
    title, about
        Its heading, and how to read it.
    suites
        Those that it is made of.
    render
        Makes it.
    """

    title: str
    about: str
    suites: tuple[str, ...]
    render: Callable[[Result], str]

    def text(self, result: Result) -> str:
        """Make the table, or say what to run for it."""
        if not any(result.rows(suite) for suite in self.suites):
            return f"Not measured: `dip bench --suite {','.join(self.suites)}`."
        return self.render(result)


TABLES = {
    "targets": Table(
        title="What is aimed at",
        about=(
            "Medians over seeds and the mixes web and documents, unless it says worst or average. *Over* a baseline is "
            "how much more throughput ours has on the same batch, costs and memory."
        ),
        suites=("paper", "progress", "latency"),
        render=targets_table,
    ),
    "baselines": Table(
        title="Against every baseline",
        about=(
            "Makespan in the simulator over ours (backwards split where that is better), medians over all batches, "
            "memory as given; in brackets on how many of them a baseline fits its memory, where not on all. Bold: the "
            "strongest that fits on all."
        ),
        suites=("paper",),
        render=baselines_table,
    ),
    "ours": Table(
        title="Our plans",
        about=(
            "*Gap*: over the plan's own proven bound. *Over ideal*: over every microbatch whole, nothing recomputed, "
            "no rank ever idle. Medians; in brackets the worst. CPU time is that of partition, search and all else."
        ),
        suites=("paper",),
        render=ours_table,
    ),
    "steps": Table(
        title="Step by step",
        about="Iteration time in seconds, medians; in brackets the throughput over Megatron's.",
        suites=("steps",),
        render=steps_table,
    ),
    "sizes": Table(
        title="Images in a sub-microbatch",
        about="VLM-S, at most so many images processed together: iteration time over that of the best size.",
        suites=("sizes",),
        render=sizes_table,
    ),
    "memory": Table(
        title="Memory and time",
        about="VLM-M: the largest peak of a rank, and iteration time over ours as given; medians.",
        suites=("memory",),
        render=memory_table,
    ),
    "mfu": Table(
        title="Model FLOPs utilisation",
        about=(
            "Useful work over what all GPUs could do at their peak in the iteration; medians. *The ideal*: if no rank "
            "ever idled and nothing was recomputed; what it lacks is what costs say of products, exchange and launches."
        ),
        suites=("paper", "large"),
        render=mfu_table,
    ),
    "waves": Table(
        title="Rising and falling",
        about=(
            "VLM-S, iterations in which images become more and fewer, then again. Ours plans each batch on one "
            "partition. Static plans are made once for all: for a batch like the whole run, or for the first one."
        ),
        suites=("waves",),
        render=waves_table,
    ),
    "progress": Table(
        title="Search over time",
        about=(
            "VLM-S on one partition and the same sub-microbatches, backwards whole. The best schedule after each time, "
            "over the best that our longest run finds."
        ),
        suites=("progress",),
        render=progress_table,
    ),
    "engines": Table(
        title="What each engine contributes",
        about=(
            "By how much each engine shortened the schedule that the search starts from: mean over all batches, in "
            "percent of the start. *Helped*: on how many of them it found anything. Others found nothing."
        ),
        suites=("engines",),
        render=engines_table,
    ),
    "growth": Table(
        title="Growth",
        about="VLM-S, one batch of each size.",
        suites=("growth",),
        render=growth_table,
    ),
    "large": Table(
        title="Large set-ups",
        about="Makespan over ours, and in brackets the model FLOPs utilisation; a dash: does not fit.",
        suites=("large",),
        render=large_table,
    ),
    "latency": Table(
        title="Outside of the search",
        about="CPU times of one process, medians of several rounds.",
        suites=("latency",),
        render=latency_table,
    ),
    "published": Table(
        title="Against what the paper reports",
        about=(
            "How much more throughput the paper's method has, by the paper and here, where a baseline is concerned; "
            "and other figures of the paper. Where a baseline comes out weaker here than there, it says why."
        ),
        suites=("paper", "waves", "sizes", "memory", "large"),
        render=published_table,
    ),
}
