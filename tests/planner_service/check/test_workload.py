"""Shows that workloads are valid requests that name, seed and mix decide, packed by the paper's rules."""

from __future__ import annotations

import pytest
from dip.validation import validate_plan_request

from planner_service.check.setups import SETUPS
from planner_service.check.workload import CONTEXT_TOKENS, MAX_CLIPS, MAX_IMAGES, MIXES, workload_json, workload_request


@pytest.mark.parametrize("config", SETUPS)
def test_workloads_are_valid_requests(config: str) -> None:
    for mix in MIXES:
        request = workload_request(config, 5, 0, mix)
        validate_plan_request(request)
        assert len(request.batch.microbatches) == 5
        assert request.job.cluster.ranks == SETUPS[config].ranks


def test_a_seed_and_a_mix_decide_the_batch() -> None:
    made = {
        (seed, mix): workload_request("vlm-s", 8, seed, mix).SerializeToString(deterministic=True)
        for seed in (0, 1)
        for mix in MIXES
    }
    assert len(set(made.values())) == len(made)
    assert made[1, "web"] == workload_request("vlm-s", 8, 1, "web").SerializeToString(deterministic=True)


@pytest.mark.parametrize("mix", MIXES)
def test_documents_fill_the_context(mix: str) -> None:
    for microbatch in workload_request("vlm-l", 64, 0, mix).batch.microbatches:
        tokens = sum(sum(sample.instances["language"].units) for sample in microbatch.samples)
        images = sum(len(sample.instances["vision"].units) for sample in microbatch.samples)
        assert tokens == CONTEXT_TOKENS
        assert images <= MAX_IMAGES


def test_clips_fit_the_microbatch() -> None:
    for microbatch in workload_request("t2v-s", 64).batch.microbatches:
        video = [sum(sample.instances["video"].units) for sample in microbatch.samples]
        assert 1 <= len(video) <= MAX_CLIPS
        # every clip is rounded up to a whole token
        assert sum(video) <= 16 * 2048 + len(video)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("vlm-xxl", 4, 0, "web"), "config is 'vlm-xxl', must be one of vlm-s"),
        (("vlm-s", 0, 0, "web"), "microbatches is 0, must be at least 1"),
        (("vlm-s", 4, 0, "radio"), "mix is 'radio', must be one of web"),
    ],
)
def test_what_is_not_there_is_named(arguments: tuple[str, int, int, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        workload_json(*arguments)
