"""Small requests, one for each corner of the contract; a builder's name says which.

Every builder makes a new message. ``FITTING`` maps names to the builders of requests that have a plan,
``CANNOT_FIT`` holds those that have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases import Sample, documents, job, module, request
from dip.planner.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable


# ---------------------------------------------------------------- numbers of microbatches and ranks


def one_microbatch() -> pb.PlanRequest:
    return request(job(), documents(1))


def fewer_microbatches_than_ranks() -> pb.PlanRequest:
    return request(job(), documents(3))


def seven_microbatches_on_four_ranks() -> pb.PlanRequest:
    return request(job(), documents(7))


def one_rank() -> pb.PlanRequest:
    return request(job(ranks=1), documents(4))


def three_ranks() -> pb.PlanRequest:
    """Layers that do not divide by the ranks."""
    return request(job(ranks=3), documents(5))


# ---------------------------------------------------------------- microbatches without images, or without anything


def _without_images(*where: int) -> pb.PlanRequest:
    microbatches = documents(5)
    for j in where:
        microbatches[j] = [{"language": [500]}, {"language": [120]}]
    return request(job(), microbatches)


def no_image_in_the_first_microbatch() -> pb.PlanRequest:
    return _without_images(0)


def no_image_in_a_middle_microbatch() -> pb.PlanRequest:
    return _without_images(2)


def no_image_in_the_last_microbatch() -> pb.PlanRequest:
    return _without_images(4)


def no_image_anywhere() -> pb.PlanRequest:
    return _without_images(0, 1, 2, 3, 4)


def _with_empty(*where: int) -> pb.PlanRequest:
    microbatches = documents(5)
    for j in where:
        microbatches[j] = []
    return request(job(), microbatches)


def empty_first_microbatch() -> pb.PlanRequest:
    return _with_empty(0)


def empty_middle_microbatch() -> pb.PlanRequest:
    return _with_empty(2)


def empty_last_microbatch() -> pb.PlanRequest:
    return _with_empty(4)


def all_microbatches_empty() -> pb.PlanRequest:
    """A replica that has nothing left to do at all."""
    return request(job(), [[], []])


def instances_without_units() -> pb.PlanRequest:
    """An empty list of units means what an absent module means: no work."""
    microbatches = documents(3)
    microbatches[1] = [{"vision": [], "language": [400]}]
    return request(job(), microbatches)


# ---------------------------------------------------------------- sub-microbatches


def instance_larger_than_the_sub_microbatch_size() -> pb.PlanRequest:
    """Instances are never split: one that is too large makes a sub-microbatch alone."""
    spec = job(sub_microbatch_units={"vision": 200, "language": 400})
    return request(spec, [*documents(3), [{"vision": [64, 900, 64, 96], "language": [700, 90]}]])


def many_images_in_one_sample() -> pb.PlanRequest:
    return request(
        job(sub_microbatch_units={"vision": 256}), [[{"vision": [64] * 17, "language": [1024]}], *documents(2)]
    )


# ---------------------------------------------------------------- models


def frozen_encoder() -> pb.PlanRequest:
    """No backward and nothing kept in the encoder."""
    modules = [module("vision", 8, frozen=True), module("language", 12, inputs=["vision"])]
    return request(job(modules), documents(5))


def frozen_encoder_after_a_trainable_module() -> pb.PlanRequest:
    """The gradient passes through the frozen module: its backward is the input's alone."""
    modules = [
        module("adapter", 4, us_per_unit=0.1),
        module("vision", 8, inputs=["adapter"], frozen=True),
        module("language", 12, inputs=["vision"]),
    ]
    microbatches = [[{"adapter": sample.get("vision", []), **sample} for sample in samples] for samples in documents(5)]
    return request(job(modules), microbatches)


def frozen_language_after_a_trainable_encoder() -> pb.PlanRequest:
    """With the backward split: the frozen module has no weight half."""
    modules = [module("vision", 8), module("language", 12, inputs=["vision"], frozen=True)]
    return request(job(modules, split_backward=True), documents(5))


def two_encoders() -> pb.PlanRequest:
    return request(job(_two_encoders()), [[*samples, _spoken(j)] for j, samples in enumerate(documents(5))])


def audio_only_in_one_microbatch() -> pb.PlanRequest:
    microbatches = documents(5)
    microbatches[3].append(_spoken(3))
    return request(job(_two_encoders()), microbatches)


def _two_encoders() -> list[pb.Module]:
    return [
        module("vision", 8),
        module("audio", 6, us_per_unit=0.2),
        module("language", 12, inputs=["vision", "audio"]),
    ]


def _spoken(j: int) -> Sample:
    return {"audio": [120 + 16 * j, 80], "language": [150]}


def chain_that_skips_a_module() -> pb.PlanRequest:
    """Vision feeds both the language model and the decoder; samples use the one, the other, or both."""
    modules = [
        module("vision", 6),
        module("language", 8, inputs=["vision"]),
        module("video", 8, inputs=["vision", "language"], us_per_unit=0.8),
    ]
    microbatches: list[list[Sample]] = [
        [{"vision": [128, 64], "language": [200], "video": [512]}, {"vision": [96], "video": [256, 128]}],
        [{"language": [220], "video": [640]}, {"video": [128]}],
        [{"vision": [256], "language": [64, 80], "video": [320]}],
    ]
    return request(job(modules), microbatches)


def two_layers_on_four_ranks() -> pb.PlanRequest:
    modules = [module("vision", 2), module("language", 12, inputs=["vision"])]
    return request(job(modules), documents(5))


def one_module() -> pb.PlanRequest:
    return request(
        job([module("language", 13)]), [[{"language": [300 + 50 * j]}, {"language": [90]}] for j in range(6)]
    )


def runs_of_different_layers() -> pb.PlanRequest:
    """An embedding without a cheaper strategy, costs of one point, and a head with no cost at all."""
    linear = pb.CostPoint(
        units=100, forward_us=30, backward_input_us=45, backward_weight_us=30, activation_bytes=12_345
    )
    language = module("language", 9, inputs=["vision"])
    language.layers.insert(0, pb.LayerRun(count=1, cost=pb.LayerCost(points=[linear]), static_bytes=7))
    language.layers.append(pb.LayerRun(count=1, cost=pb.LayerCost(points=[pb.CostPoint(units=1)])))
    return request(job([module("vision", 5), language]), documents(5))


# ---------------------------------------------------------------- clusters and options


def rank_speeds_that_differ() -> pb.PlanRequest:
    return request(job(rank_speed=[1.0, 0.5, 1.25, 0.8]), documents(6))


def memory_that_differs_by_rank() -> pb.PlanRequest:
    """One rank without a limit, one that can hold little more than its layers and has to recompute."""
    return request(job(memory_bytes=[12_000_000, 0, 8_000_000, 16_000_000]), documents(8))


def links_without_bandwidth_term() -> pb.PlanRequest:
    made = request(job(), documents(4))
    made.job.cluster.link_bytes_per_us = 0
    return made


def split_backward() -> pb.PlanRequest:
    return request(job(split_backward=True), documents(6))


def split_backward_in_little_memory() -> pb.PlanRequest:
    return request(job(split_backward=True, memory_bytes=[6_500_000]), documents(6))


def forward_only() -> pb.PlanRequest:
    return request(job(memory_bytes=[12_000_000]), documents(5), forward_only=True)


def two_segments() -> pb.PlanRequest:
    return request(job(segments={"vision": 1, "language": 2}), documents(5))


def loaded_partition() -> pb.PlanRequest:
    """A partition that is no row of segments: it is kept as it is."""
    made = request(job(), documents(5))
    for name, sizes, ranks in (("vision", (5, 3), (1, 0)), ("language", (1, 4, 2, 5), (3, 2, 2, 0))):
        first = 0
        for index, (size, rank) in enumerate(zip(sizes, ranks, strict=True)):
            made.partition.chunks.add(module=name, index=index, rank=rank, first_layer=first, num_layers=size)
            first += size
    return made


# ---------------------------------------------------------------- what has no plan


def static_bytes_cannot_fit() -> pb.PlanRequest:
    """Twenty layers of a megabyte on ranks of 4 MB: not even the weights fit."""
    return request(job(memory_bytes=[4_000_000]), documents(4))


def one_task_cannot_fit() -> pb.PlanRequest:
    """The layers fit, but one instance alone keeps more than what is left, recomputed or not."""
    return request(job(memory_bytes=[5_500_000]), [[{"language": [100_000]}]])


FITTING: dict[str, Callable[[], pb.PlanRequest]] = {
    builder.__name__: builder
    for builder in (
        one_microbatch,
        fewer_microbatches_than_ranks,
        seven_microbatches_on_four_ranks,
        one_rank,
        three_ranks,
        no_image_in_the_first_microbatch,
        no_image_in_a_middle_microbatch,
        no_image_in_the_last_microbatch,
        no_image_anywhere,
        empty_first_microbatch,
        empty_middle_microbatch,
        empty_last_microbatch,
        all_microbatches_empty,
        instances_without_units,
        instance_larger_than_the_sub_microbatch_size,
        many_images_in_one_sample,
        frozen_encoder,
        frozen_encoder_after_a_trainable_module,
        frozen_language_after_a_trainable_encoder,
        two_encoders,
        audio_only_in_one_microbatch,
        chain_that_skips_a_module,
        two_layers_on_four_ranks,
        one_module,
        runs_of_different_layers,
        rank_speeds_that_differ,
        memory_that_differs_by_rank,
        links_without_bandwidth_term,
        split_backward,
        split_backward_in_little_memory,
        forward_only,
        two_segments,
        loaded_partition,
    )
}
CANNOT_FIT: dict[str, Callable[[], pb.PlanRequest]] = {
    builder.__name__: builder for builder in (static_bytes_cannot_fit, one_task_cannot_fit)
}
