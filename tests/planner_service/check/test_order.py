"""Shows that no task may start before its inputs are there, wherever they come from."""

from __future__ import annotations

from tiny_plan import split_tiny_plan, split_tiny_request, tiny_plan, tiny_request

from planner_service.check import check_plan


def test_a_forward_waits_for_the_transfer_of_its_input() -> None:
    plan = tiny_plan()
    text = plan.ranks[1].actions[2]
    text.start_us, text.end_us = 38, 78
    faults = check_plan(tiny_request(), plan).faults
    assert "forward of sub-microbatch 2, chunk 0 starts at 38, its input is there at 39" in faults


def test_a_backward_waits_for_its_own_forward() -> None:
    plan = tiny_plan()
    text = plan.ranks[1].actions[3]
    text.start_us, text.end_us = 78, 198
    faults = check_plan(tiny_request(), plan).faults
    assert "backward of sub-microbatch 2, chunk 0 starts at 78, its input is there at 79" in faults


def test_a_backward_waits_for_the_transfer_of_its_gradient() -> None:
    plan = tiny_plan()
    image = plan.ranks[0].actions[6]
    image.start_us, image.end_us = 205, 235
    faults = check_plan(tiny_request(), plan).faults
    assert "backward of sub-microbatch 0, chunk 0 starts at 205, its input is there at 206" in faults


def test_a_weight_half_waits_for_the_input_half() -> None:
    plan = split_tiny_plan()
    weight = plan.ranks[1].actions[6]
    weight.start_us, weight.end_us = 158, 198
    faults = check_plan(split_tiny_request(), plan).faults
    assert "backward_weight of sub-microbatch 2, chunk 0 starts at 158, its input is there at 159" in faults


def test_only_units_of_samples_that_the_consumer_has_travel() -> None:
    request, plan = tiny_request(), tiny_plan()
    # the second image belongs to a sample of its own, whose text is another sub-microbatch
    sample = request.batch.microbatches[0].samples.add()
    sample.instances["vision"].units.append(20)
    sample.instances["language"].units.append(40)
    request.batch.microbatches[0].samples[0].instances["vision"].units.pop()
    plan.sub_microbatches[1].instances[0].sample = 1
    plan.sub_microbatches[1].instances[0].index = 0
    plan.sub_microbatches.add(id=3, module="language").instances.add(sample=1, units=40)
    faults = check_plan(request, plan).faults
    assert not any("forward of sub-microbatch 2, chunk 0 starts" in fault for fault in faults)
    assert any("nothing needs a send of the activation from sub-microbatch 1, chunk 0, to 2" in f for f in faults)


def test_tasks_of_one_rank_need_no_hop() -> None:
    request, plan = tiny_request(), tiny_plan()
    request.job.cluster.ranks = 1
    plan.partition.chunks[1].rank = 0
    work = [*plan.ranks[0].actions[0:3:2], *plan.ranks[1].actions[2:4], *plan.ranks[0].actions[6:]]
    del plan.ranks[1]
    del plan.ranks[0].actions[:]
    plan.ranks[0].actions.extend(work)
    now = 0
    for action in plan.ranks[0].actions:
        took = action.end_us - action.start_us
        action.start_us, action.end_us = now, now + took
        now += took
    plan.makespan_us = now
    plan.ranks[0].peak_memory_bytes = 300 + 700
    assert check_plan(request, plan).faults == ()
