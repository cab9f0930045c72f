"""Requests to plan: the paper's set-ups with batches drawn by its packing rules.

A name, a seed and a mix decide a request to the last bit, so that plans can be compared wherever they were made.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from dip.planner.v1 import planner_pb2 as pb
from google.protobuf import json_format

from planner_service.check.setups import PATCHES_PER_IMAGE, SETUPS, TOKENS_PER_IMAGE, job

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner_service.check.setups import Json

CONTEXT_TOKENS = 8192
"""Language tokens of one microbatch of documents."""
MAX_IMAGES = 48
"""Images of one microbatch: then their tokens fill the context."""
IMAGES_OF_A_DOCUMENT = (1, 1, 2, 3, 5, 8)

VIDEO_TOKENS_PER_S = 2048
MAX_SECONDS = 16.0
"""Video of one microbatch."""
MIN_CLIP_SECONDS = 2.0
MAX_CLIPS = 8
TYPICAL_CLIP_SECONDS = (2.0, 4.0, 8.0, 15.0)


def workload_request(config: str, microbatches: int = 16, seed: int = 0, mix: str = "web") -> pb.PlanRequest:
    """Make the request of a set-up.

    Parameters
    ----------
    config
        Name of the set-up, one of ``SETUPS``.
    microbatches
        Number of microbatches, above 0.
    seed
        Which of the mix's batches.
    mix
        How many images come together, one of ``MIXES``; set-ups that make video draw clips instead, other ones for
        each mix.

    Raises
    ------
    ValueError
        Where there is no such set-up or mix, or no microbatch.
    """
    return json_format.ParseDict(workload_json(config, microbatches, seed, mix), pb.PlanRequest())


def workload_json(config: str, microbatches: int = 16, seed: int = 0, mix: str = "web") -> Json:
    """Make the same request as the JSON mapping of its message, with whole numbers for 64-bit fields."""
    if config not in SETUPS:
        raise ValueError(f"config is {config!r}, must be one of {', '.join(SETUPS)}")
    if mix not in MIXES:
        raise ValueError(f"mix is {mix!r}, must be one of {', '.join(MIXES)}")
    if microbatches < 1:
        raise ValueError(f"microbatches is {microbatches}, must be at least 1")
    setup = SETUPS[config]
    rng = random.Random(f"{config} {seed} {mix}")
    if setup.modules[0][0] == "vision":
        made = [_documents(MIXES[mix](j, microbatches, rng), rng) for j in range(microbatches)]
    else:
        made = [_clips(rng) for _ in range(microbatches)]
    return {"job": job(setup), "batch": {"microbatches": made}}


# ---------------------------------------------------------------- how many images a microbatch has


def _web(_j: int, _total: int, rng: random.Random) -> int:
    """Few, some or many."""
    return min(MAX_IMAGES, rng.choice((rng.randint(0, 8), rng.randint(8, 32), rng.randint(24, 48))))


def _interleaved(_j: int, _total: int, rng: random.Random) -> int:
    """Few images a page, with a long tail."""
    return min(MAX_IMAGES, int(rng.lognormvariate(1.8, 1.0)))


def _text(_j: int, _total: int, rng: random.Random) -> int:
    """Seldom any."""
    return rng.choice((0, 0, 0, 1, 2))


def _waves(j: int, total: int, rng: random.Random) -> int:
    """Two rises and falls over the iteration."""
    level = 16 * (1 - abs((4 * j / max(1, total)) % 2 - 1))
    return rng.randint(int(level), int(level) + 16)


MIXES: dict[str, Callable[[int, int, random.Random], int]] = {
    "web": _web,
    "documents": _interleaved,
    "text": _text,
    "waves": _waves,
}
"""By name: (microbatch, microbatches in all, random source) -> images."""


# ---------------------------------------------------------------- what a microbatch holds


def _documents(images: int, rng: random.Random) -> Json:
    """Pack documents of images and text until the context is full."""
    samples: list[Json] = []
    left = CONTEXT_TOKENS - images * TOKENS_PER_IMAGE
    while images > 0 or left > 0:
        here = min(images, rng.choice(IMAGES_OF_A_DOCUMENT))
        images -= here
        text = _text_tokens(images, left, rng)
        left -= text
        tokens = text + here * TOKENS_PER_IMAGE
        instances = {"language": {"units": [tokens]}} if tokens else {}
        if here:
            instances["vision"] = {"units": [PATCHES_PER_IMAGE] * here}
        if instances:
            samples.append({"instances": instances})
    return {"samples": samples}


def _text_tokens(images: int, left: int, rng: random.Random) -> int:
    """Draw the text of a document; the last one often takes what is left."""
    if images == 0 and (left < 64 or rng.random() < 0.3):
        return left
    return min(left, int(rng.lognormvariate(5.5, 1.0)) + 16)


def _clips(rng: random.Random) -> Json:
    """Pack captioned clips of alike duration until the microbatch is full."""
    samples: list[Json] = []
    left = MAX_SECONDS
    typical = rng.choice(TYPICAL_CLIP_SECONDS)
    while left >= MIN_CLIP_SECONDS and len(samples) < MAX_CLIPS:
        seconds = min(left, max(MIN_CLIP_SECONDS, rng.gauss(typical, 1.0)))
        if samples and rng.random() < 0.15:
            break
        left -= seconds
        caption = rng.randint(60, 400)
        video = math.ceil(seconds * VIDEO_TOKENS_PER_S)
        samples.append({"instances": {"language": {"units": [caption]}, "video": {"units": [video]}}})
    return {"samples": samples}
