"""Digests: known answers computed with hashlib from bytes written by hand, and every part's say in the whole."""

from __future__ import annotations

import hashlib

import pytest
from dip.digests import (
    batch_digest,
    combine_digests,
    partition_digest,
    plan_digest,
    schedule_digest,
    streamed_digest,
    sub_microbatches_digest,
)
from dip.planner.v1 import planner_pb2 as pb

# The wire format by hand: a field's key is number * 8 + type (0: number, 2: length-delimited).
CHUNK = bytes([0x0A, 2, *b"lm", 0x18, 1, 0x28, 3])  # module "lm", rank 1, num_layers 3; index and first_layer are 0
PARTITION = bytes([0x0A, len(CHUNK)]) + CHUNK
INSTANCES = bytes([0x0A, 2, 0xAC, 0x02])  # units [300], packed
ENTRY = bytes([0x0A, 2, *b"lm", 0x12, len(INSTANCES)]) + INSTANCES
SAMPLE = bytes([0x0A, len(ENTRY)]) + ENTRY
MICROBATCH = bytes([0x0A, len(SAMPLE)]) + SAMPLE
BATCH = bytes([0x0A, len(MICROBATCH)]) + MICROBATCH
REF = bytes([0x18, 0xAC, 0x02])  # sample 0, index 0, units 300
SUB = bytes([0x12, 2, *b"lm", 0x22, len(REF)]) + REF
SUBS = bytes([0x12, len(SUB)]) + SUB  # field 2 of a Plan
ACTION = bytes([0x08, 1, 0x12, 2, *b"lm", 0x50, 7])  # forward, module "lm", end_us 7
SCHEDULE = bytes([0x08, 1, 0x12, len(ACTION)]) + ACTION + bytes([0x18, 64])  # rank 1, one action, peak 64


def batch() -> pb.Batch:
    sample = pb.Sample(instances={"lm": pb.Instances(units=[300])})
    return pb.Batch(microbatches=[pb.Microbatch(samples=[sample])])


def plan() -> pb.Plan:
    made = pb.Plan(makespan_us=7, digest=b"never read")
    made.partition.chunks.add(module="lm", rank=1, num_layers=3)
    made.sub_microbatches.add(module="lm").instances.add(units=300)
    made.ranks.add()
    made.ranks.add(rank=1, peak_memory_bytes=64).actions.add(kind=pb.ACTION_KIND_FORWARD, module="lm", end_us=7)
    return made


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def streamed(rank: int = 1) -> pb.StreamedSchedule:
    whole = plan()
    return pb.StreamedSchedule(
        sub_microbatches=whole.sub_microbatches,
        schedule=whole.ranks[rank],
        batch_digest=batch_digest(batch()),
        partition_digest=partition_digest(whole.partition),
        schedule_digests=[schedule_digest(schedule) for schedule in whole.ranks],
    )


def test_parts_are_hashed_as_they_go_over_the_wire() -> None:
    whole = plan()
    assert batch_digest(batch()) == sha(BATCH)
    assert partition_digest(whole.partition) == sha(PARTITION)
    assert sub_microbatches_digest(whole.sub_microbatches) == sha(SUBS)
    assert schedule_digest(whole.ranks[1]) == sha(SCHEDULE)


def test_the_whole_is_hashed_over_its_parts_in_order() -> None:
    parts = sha(BATCH) + sha(PARTITION) + sha(SUBS) + sha(b"") + sha(SCHEDULE)
    assert plan_digest(plan(), batch()) == sha(parts)
    assert combine_digests(sha(BATCH), sha(PARTITION), sha(SUBS), [sha(b""), sha(SCHEDULE)]) == sha(parts)


def test_known_answers() -> None:
    """What other languages have to compute, written down once."""
    assert batch_digest(pb.Batch()).hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    zeros = combine_digests(bytes(32), bytes(32), bytes(32), [])
    assert zeros.hex() == "2ea9ab9198d1638007400cd2c3bef1cc745b864b76011a0e1bc52180ac6452d4"


def test_maps_are_hashed_in_one_order() -> None:
    """Samples name their modules in a map: however it was filled, the bytes are the same."""
    names = [f"module {i}" for i in range(20)]
    there, back = pb.Batch(), pb.Batch()
    for made, order in ((there, names), (back, names[::-1])):
        sample = made.microbatches.add().samples.add()
        for name in order:
            sample.instances[name].units.append(len(name))
    assert batch_digest(there) == batch_digest(back)


def test_every_part_changes_the_digest() -> None:
    """All but what the plan says of itself: makespan, bound, search report, fallback."""
    seen = {plan_digest(plan(), batch())}
    other_batch = batch()
    other_batch.microbatches[0].samples[0].instances["lm"].units[0] = 301
    seen.add(plan_digest(plan(), other_batch))
    changed = [plan() for _ in range(8)]
    changed[0].partition.chunks[0].rank = 0
    changed[1].partition.chunks[0].num_layers = 4
    changed[2].sub_microbatches[0].instances[0].sample = 1
    changed[3].sub_microbatches[0].id = 1
    changed[4].ranks[1].actions[0].start_us = 1
    changed[5].ranks[1].actions[0].strategies.add(name="recompute", num_layers=1)
    changed[6].ranks[1].peak_memory_bytes = 65
    changed[7].ranks.add()
    seen |= {plan_digest(other, batch()) for other in changed}
    assert len(seen) == 2 + len(changed)
    labelled = plan()
    labelled.makespan_us, labelled.lower_bound_us, labelled.fallback = 8, 3, True
    assert plan_digest(labelled, batch()) == plan_digest(plan(), batch())


def test_schedules_that_change_places_change_the_digest() -> None:
    swapped = plan()
    first = pb.RankSchedule()
    first.CopyFrom(swapped.ranks[0])
    swapped.ranks[0].CopyFrom(swapped.ranks[1])
    swapped.ranks[1].CopyFrom(first)
    assert plan_digest(swapped, batch()) != plan_digest(plan(), batch())


@pytest.mark.parametrize("rank", [0, 1])
def test_every_rank_finds_the_whole_plan_in_its_part(rank: int) -> None:
    assert streamed_digest(streamed(rank)) == plan_digest(plan(), batch())


def test_a_changed_schedule_is_refused_under_the_right_label() -> None:
    part = streamed()
    part.schedule.actions[0].chunk = 1
    with pytest.raises(ValueError, match=r"schedule of rank 1 is not the one that schedule_digests\[1\] was made of"):
        streamed_digest(part)


def test_changed_sub_microbatches_change_the_whole() -> None:
    part = streamed()
    part.sub_microbatches[0].instances[0].units = 299
    assert streamed_digest(part) != plan_digest(plan(), batch())


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_without_a_stated_digest_is_refused(rank: int) -> None:
    part = streamed()
    part.schedule.rank = rank
    with pytest.raises(ValueError, match=f"schedule.rank is {rank}, schedule_digests holds 2 digests"):
        streamed_digest(part)
