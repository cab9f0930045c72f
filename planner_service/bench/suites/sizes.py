"""Images in a sub-microbatch: VLM-S with at most 4 to 32 of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.bench.case import Case
from planner_service.bench.ours import OURS, our_row, plan_seconds
from planner_service.bench.suites.suite import Suite
from planner_service.check.setups import PATCHES_PER_IMAGE

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.bench.case import Row
    from planner_service.bench.settings import Settings

IMAGES = (4, 6, 8, 10, 12, 16, 20, 24, 32)
CONFIG = "vlm-s"


def cases(settings: Settings) -> list[Case]:
    """Each size on each batch of the first mix."""
    return [
        Case(
            config=CONFIG,
            mix=settings.mixes[0],
            seed=seed,
            microbatches=settings.microbatches,
            variant=f"{images} images",
            seconds=plan_seconds(settings),
        )
        for seed in settings.seeds
        for images in IMAGES
    ]


def measure(case: Case, settings: Settings) -> list[Row]:
    """Plan a batch with one size."""
    row, _, _ = our_row(case, request_of(case), settings, method=OURS)
    return [{**row, "images": _images(case)}]


def request_of(case: Case) -> pb.PlanRequest:
    """Return the batch's request, with the case's size asked for."""
    request = case.request()
    request.job.options.sub_microbatch_units["vision"] = _images(case) * PATCHES_PER_IMAGE
    return request


def _images(case: Case) -> int:
    return int(case.variant.split()[0])


SIZES = Suite(name="sizes", about="sub-microbatches of 4 to 32 images, VLM-S", cases=cases, measure=measure)
