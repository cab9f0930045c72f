"""Figures that the paper reports (arXiv 2504.14145), beside what was measured here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from planner_service.bench.case import GIVEN
from planner_service.bench.ours import OURS
from planner_service.bench.papers import AS_WRITTEN
from planner_service.bench.report.against import waves_totals
from planner_service.bench.report.query import by_batch, gains, median, number, pick
from planner_service.bench.report.text import NONE, percent, table
from planner_service.bench.suites.memory import AT_OPTIMUS_PEAK, OPTIMUS
from planner_service.bench.suites.waves import BALANCED, MEGATRON, ON_TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner_service.bench.result import Result

VLM, T2V = ("vlm-s", "vlm-m", "vlm-l"), ("t2v-s", "t2v-l")
FEW_IMAGES = 8
"""Below so many images the paper sees sub-microbatches become inefficient."""

BY_WEIGHTS = (
    "stages of equal weights hold very unequal work here: an image is 2,704 patches for the encoder and 169 tokens for "
    "the language model, and the paper's own batches and measured costs are not published"
)
BY_LATENCY = (
    "whole microbatches run in a fixed order, so ranks wait wherever neighbours have different shares of images; how "
    "different, the paper's unpublished batches decide"
)
ALL_FORWARDS = (
    "it holds what encoders keep of the whole batch, so here, with one limit for all, layers recompute to make room"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """A figure of the paper.

    Parameters
    ----------
    what, source
        What it is, and where it stands there.
    low, high
        The figure, or its range; shares unless ``share`` is false.
    measured
        The same here.
    why
        Why a baseline may be weaker here, where it is about one.
    share
        Whether figures are shares, shown in percent.
    """

    what: str
    source: str
    low: float
    high: float
    measured: Callable[[Result], float | None]
    why: str = ""
    share: bool = True

    def line(self, result: Result) -> tuple[str, ...]:
        """Line of the table."""
        here = self.measured(result)
        weaker = bool(self.why) and here is not None and here > self.high
        by = NONE if here is None or not weaker else percent((1 + here) / (1 + self.high) - 1)
        low, high = self._shown(self.low), self._shown(self.high)
        reported = f"{low} to {high}" if self.low != self.high else low
        return (self.what, f"{reported} ({self.source})", self._shown(here), by, self.why if weaker else NONE)

    def _shown(self, value: float | None) -> str:
        if value is None:
            return NONE
        return percent(value, signed=True) if self.share else f"{value:g}"


def _paper_over(result: Result, baseline: str, configs: Sequence[str]) -> float | None:
    """Throughput of the paper's method, as written, over a baseline."""
    rows = pick(result.rows("paper"), memory=GIVEN, config=tuple(configs))
    return median(gains(by_batch(rows, method=AS_WRITTEN), by_batch(rows, method=baseline)))


def _waves_over(result: Result, method: str) -> float | None:
    """How much longer iterations take than under ours, those that fit."""
    _, total_us, ours_us = waves_totals(result, method)
    return total_us / ours_us - 1 if ours_us else None


def _best_images(result: Result) -> float | None:
    times = _times_of_images(result)
    return min(times, key=lambda images: times[images]) if times else None


def _few_images(result: Result) -> float | None:
    """How much longer the best size below `FEW_IMAGES` takes than the best of all."""
    times = _times_of_images(result)
    few = [time for images, time in times.items() if images < FEW_IMAGES]
    return min(few) / min(times.values()) - 1 if few else None


def _times_of_images(result: Result) -> dict[int, float]:
    rows = pick(result.rows("sizes"), fits=True)
    sizes = sorted({number(row, "images") for row in rows})
    return {size: median(list(by_batch(rows, images=size).values())) or 0.0 for size in sizes}


def _optimus_memory(result: Result) -> float | None:
    """How much more Optimus-like holds at its peak than Megatron."""
    rows = result.rows("memory")
    optimus, megatron = (by_batch(rows, "peak_bytes", method=method) for method in (OPTIMUS, MEGATRON))
    return median(gains(megatron, optimus))


def _over_optimus(result: Result) -> float | None:
    """Throughput of ours over Optimus-like with no more memory."""
    rows = result.rows("memory")
    return median(gains(by_batch(rows, method=OURS, memory=AT_OPTIMUS_PEAK), by_batch(rows, method=OPTIMUS)))


def _mfu(result: Result, config: str) -> float | None:
    return median(list(by_batch(result.rows("large"), "mfu", method=OURS, config=config).values()))


PUBLISHED = (
    Published(
        what="its method over Megatron-LM interleaved, VLM",
        source="section on end-to-end training",
        low=0.156,
        high=0.762,
        measured=partial(_paper_over, baseline="megatron-interleaved", configs=VLM),
        why=BY_WEIGHTS,
    ),
    Published(
        what="its method over nnScaler's static plan (latency-balanced), VLM",
        source="the same",
        low=0.156,
        high=0.762,
        measured=partial(_paper_over, baseline="latency-balanced", configs=VLM),
        why=BY_LATENCY,
    ),
    Published(
        what="its method over Optimus-like, VLM",
        source="the same",
        low=0.156,
        high=0.762,
        measured=partial(_paper_over, baseline="optimus", configs=VLM),
        why=ALL_FORWARDS,
    ),
    Published(
        what="its method over Megatron-LM interleaved, text to video",
        source="the same",
        low=0.366,
        high=0.973,
        measured=partial(_paper_over, baseline="megatron-interleaved", configs=T2V),
        why=BY_WEIGHTS,
    ),
    Published(
        what="its method over nnScaler's static plan (latency-balanced), text to video",
        source="the same",
        low=0.366,
        high=0.973,
        measured=partial(_paper_over, baseline="latency-balanced", configs=T2V),
        why=BY_LATENCY,
    ),
    Published(
        what="its method over Megatron-LM interleaved, VLM-S",
        source="step by step: 26.13 s to 16.05 s",
        low=26.13 / 16.05 - 1,
        high=26.13 / 16.05 - 1,
        measured=partial(_paper_over, baseline="megatron-interleaved", configs=("vlm-s",)),
        why=BY_WEIGHTS,
    ),
    Published(
        what="rising and falling images: Megatron-LM's time over a planned run's (here: ours)",
        source="dynamic data",
        low=0.529,
        high=0.529,
        measured=partial(_waves_over, method=MEGATRON),
        why=BY_WEIGHTS,
    ),
    Published(
        what="the same: static plan",
        source="dynamic data",
        low=0.104,
        high=0.104,
        measured=partial(_waves_over, method=BALANCED),
        why=BY_LATENCY,
    ),
    Published(
        what="the same: static plan made for near-text data",
        source="dynamic data",
        low=0.505,
        high=0.505,
        measured=partial(_waves_over, method=BALANCED + ON_TEXT),
        why=BY_LATENCY,
    ),
    Published(
        what="best number of images in a sub-microbatch",
        source="sub-microbatch sizes",
        low=12,
        high=12,
        measured=_best_images,
        share=False,
    ),
    Published(
        what="time with fewer than 8 images, over the best",
        source="sub-microbatch sizes",
        low=0.121,
        high=0.121,
        measured=_few_images,
    ),
    Published(
        what="peak memory of Optimus-like over Megatron's, VLM-M (there: rank 0)",
        source="memory",
        low=0.253,
        high=0.253,
        measured=_optimus_memory,
    ),
    Published(
        what="over Optimus-like at its peak memory, VLM-M (there: time saved)",
        source="memory",
        low=0.122,
        high=0.122,
        measured=_over_optimus,
        why=ALL_FORWARDS,
    ),
    Published(
        what="MFU, ViT 22B + GPT 175B on 16 pipeline ranks (here: ours)",
        source="simulated",
        low=0.36,
        high=0.36,
        measured=partial(_mfu, config="vlm-xl-16"),
        share=False,
    ),
    Published(
        what="MFU, Qwen2 72B + DiT 30B (here: ours, 8 ranks)",
        source="simulated",
        low=0.39,
        high=0.39,
        measured=partial(_mfu, config="t2v-xl-8"),
        share=False,
    ),
)


def published_table(result: Result) -> str:
    """All figures of the paper that something was measured for."""
    lines = [published.line(result) for published in PUBLISHED]
    head = ("what", "the paper reports", "here", "baseline weaker by", "why")
    return table(head, [line for line in lines if line[2] != NONE])
