"""Ways to spoil a plan, by name.

A mutation changes a plan in place and returns whether it found something to change. Most of them leave a plan
that breaks the contract; some happen to leave a valid one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dip.planner.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

TRANSFERS = frozenset(
    (
        pb.ACTION_KIND_SEND_ACTIVATION,
        pb.ACTION_KIND_RECV_ACTIVATION,
        pb.ACTION_KIND_SEND_GRADIENT,
        pb.ACTION_KIND_RECV_GRADIENT,
    )
)


# ---------------------------------------------------------------- picking


def pick_rank(plan: pb.Plan, rng: random.Random, at_least: int = 1) -> pb.RankSchedule | None:
    """Return a rank with at least so many actions, if there is one."""
    ranks = [schedule for schedule in plan.ranks if len(schedule.actions) >= at_least]
    return rng.choice(ranks) if ranks else None


def pick_action(plan: pb.Plan, rng: random.Random, *, transfer: bool | None = None) -> pb.Action | None:
    """Return an action, of transfers or of compute alone where ``transfer`` says so."""
    actions = [
        action
        for schedule in plan.ranks
        for action in schedule.actions
        if transfer is None or (action.kind in TRANSFERS) is transfer
    ]
    return rng.choice(actions) if actions else None


def copies(messages: Any) -> list[Any]:
    """Copy a repeated field, so that it can be written anew."""
    made = []
    for message in messages:
        copy = type(message)()
        copy.CopyFrom(message)
        made.append(copy)
    return made


def rewrite(messages: Any, new: list[Any]) -> None:
    """Replace all elements of a repeated field."""
    del messages[:]
    messages.extend(new)


# ---------------------------------------------------------------- actions


def move_action(plan: pb.Plan, rng: random.Random) -> bool:
    schedule = pick_rank(plan, rng, at_least=2)
    if schedule is None:
        return False
    actions = copies(schedule.actions)
    moved = actions.pop(rng.randrange(len(actions)))
    actions.insert(rng.randrange(len(actions) + 1), moved)
    rewrite(schedule.actions, actions)
    return True


def move_action_to_another_rank(plan: pb.Plan, rng: random.Random) -> bool:
    schedule = pick_rank(plan, rng)
    if schedule is None or len(plan.ranks) < 2:
        return False
    actions = copies(schedule.actions)
    moved = actions.pop(rng.randrange(len(actions)))
    rewrite(schedule.actions, actions)
    other = rng.choice([s for s in plan.ranks if s is not schedule])
    other_actions = copies(other.actions)
    other_actions.insert(rng.randrange(len(other_actions) + 1), moved)
    rewrite(other.actions, other_actions)
    return True


def drop_action(plan: pb.Plan, rng: random.Random) -> bool:
    schedule = pick_rank(plan, rng)
    if schedule is None:
        return False
    del schedule.actions[rng.randrange(len(schedule.actions))]
    return True


def double_action(plan: pb.Plan, rng: random.Random) -> bool:
    schedule = pick_rank(plan, rng)
    if schedule is None:
        return False
    actions = copies(schedule.actions)
    actions.insert(rng.randrange(len(actions) + 1), rng.choice(actions))
    rewrite(schedule.actions, actions)
    return True


def shorten_action(plan: pb.Plan, rng: random.Random) -> bool:
    action = pick_action(plan, rng)
    if action is None:
        return False
    action.end_us -= rng.choice((1, 2, 10))
    return True


def lengthen_action(plan: pb.Plan, rng: random.Random) -> bool:
    action = pick_action(plan, rng)
    if action is None:
        return False
    action.end_us += rng.choice((1, 2, 10))
    return True


def start_action_earlier(plan: pb.Plan, rng: random.Random) -> bool:
    action, by = pick_action(plan, rng), rng.choice((1, 5, 100))
    if action is None:
        return False
    action.start_us -= by
    action.end_us -= by
    return True


def start_action_later(plan: pb.Plan, rng: random.Random) -> bool:
    action, by = pick_action(plan, rng), rng.choice((1, 5, 100))
    if action is None:
        return False
    action.start_us += by
    action.end_us += by
    return True


def swap_neighbours(plan: pb.Plan, rng: random.Random) -> bool:
    schedule = pick_rank(plan, rng, at_least=2)
    if schedule is None:
        return False
    actions, n = copies(schedule.actions), rng.randrange(len(schedule.actions) - 1)
    actions[n], actions[n + 1] = actions[n + 1], actions[n]
    rewrite(schedule.actions, actions)
    return True


def swap_transfers(plan: pb.Plan, rng: random.Random) -> bool:
    """Swap two transfers of one kind on one rank, as a runtime without tags could not tell."""
    for schedule in rng.sample(list(plan.ranks), len(plan.ranks)):
        kind = rng.choice(sorted(TRANSFERS))
        places = [n for n, action in enumerate(schedule.actions) if action.kind == kind]
        if len(places) >= 2:
            i, j = rng.sample(places, 2)
            actions = copies(schedule.actions)
            actions[i], actions[j] = actions[j], actions[i]
            rewrite(schedule.actions, actions)
            return True
    return False


def swap_consumers(plan: pb.Plan, rng: random.Random) -> bool:
    first, second = pick_action(plan, rng, transfer=True), pick_action(plan, rng, transfer=True)
    if first is None or second is None:
        return False
    swapped = second.consumer_sub_microbatch, first.consumer_sub_microbatch
    first.consumer_sub_microbatch, second.consumer_sub_microbatch = swapped
    return True


def change_peer(plan: pb.Plan, rng: random.Random) -> bool:
    action = pick_action(plan, rng, transfer=True)
    if action is None:
        return False
    action.peer += rng.choice((-1, 1))
    return True


def rename_module(plan: pb.Plan, rng: random.Random) -> bool:
    action = pick_action(plan, rng)
    if action is None:
        return False
    setattr(action, rng.choice(("module", "consumer_module")), rng.choice(("vision", "language", "", "audio")))
    return True


def change_kind(plan: pb.Plan, rng: random.Random) -> bool:
    action = pick_action(plan, rng)
    if action is None:
        return False
    action.kind = pb.ActionKind.ValueType(rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 42)))
    return True


def change_chunk(plan: pb.Plan, rng: random.Random) -> bool:
    action = pick_action(plan, rng)
    if action is None:
        return False
    action.chunk += rng.choice((-1, 1))
    return True


def change_sub_microbatch(plan: pb.Plan, rng: random.Random) -> bool:
    action = pick_action(plan, rng)
    if action is None:
        return False
    action.sub_microbatch += rng.choice((-1, 1, 1000))
    return True


def change_strategy(plan: pb.Plan, rng: random.Random) -> bool:
    action = pick_action(plan, rng, transfer=False)
    if action is None:
        return False
    if action.strategies and rng.random() < 0.5:
        run = rng.choice(action.strategies)
        run.num_layers += rng.choice((-1, 1))
    else:
        action.strategies.add(name=rng.choice(("store", "recompute", "forget")), num_layers=rng.choice((0, 1, 2, 3)))
    return True


def split_a_backward(plan: pb.Plan, rng: random.Random) -> bool:
    """Turn a whole backward into halves that take as long together."""
    for schedule in rng.sample(list(plan.ranks), len(plan.ranks)):
        actions = copies(schedule.actions)
        places = [n for n, action in enumerate(actions) if action.kind == pb.ACTION_KIND_BACKWARD]
        if places:
            n = rng.choice(places)
            weight = copies([actions[n]])[0]
            actions[n].kind, weight.kind = pb.ACTION_KIND_BACKWARD_INPUT, pb.ACTION_KIND_BACKWARD_WEIGHT
            middle = (weight.start_us + weight.end_us) // 2
            actions[n].end_us = weight.start_us = middle
            actions.insert(n + 1, weight)
            rewrite(schedule.actions, actions)
            return True
    return False


# ---------------------------------------------------------------- parts and figures


def change_bytes(plan: pb.Plan, rng: random.Random) -> bool:
    schedule = rng.choice(plan.ranks)
    by = rng.choice((-1, 1, 16, 17, 1000, 10**7))
    schedule.peak_memory_bytes += by
    return True


def drop_rank(plan: pb.Plan, rng: random.Random) -> bool:
    del plan.ranks[rng.randrange(len(plan.ranks))]
    return True


def renumber_rank(plan: pb.Plan, rng: random.Random) -> bool:
    rng.choice(plan.ranks).rank += rng.choice((-1, 1))
    return True


def list_ranks_in_another_order(plan: pb.Plan, rng: random.Random) -> bool:
    ranks = copies(plan.ranks)
    rng.shuffle(ranks)
    rewrite(plan.ranks, ranks)
    return True


def change_chunk_of_the_partition(plan: pb.Plan, rng: random.Random) -> bool:
    chunk = rng.choice(plan.partition.chunks)
    field = rng.choice(("index", "rank", "first_layer", "num_layers"))
    setattr(chunk, field, getattr(chunk, field) + rng.choice((-1, 1)))
    return True


def drop_chunk(plan: pb.Plan, rng: random.Random) -> bool:
    del plan.partition.chunks[rng.randrange(len(plan.partition.chunks))]
    return True


def drop_sub_microbatch(plan: pb.Plan, rng: random.Random) -> bool:
    if not plan.sub_microbatches:
        return False
    del plan.sub_microbatches[rng.randrange(len(plan.sub_microbatches))]
    return True


def double_sub_microbatch(plan: pb.Plan, rng: random.Random) -> bool:
    if not plan.sub_microbatches:
        return False
    copy = copies([rng.choice(plan.sub_microbatches)])[0]
    copy.id += rng.choice((0, 1000))
    plan.sub_microbatches.append(copy)
    return True


def change_instance(plan: pb.Plan, rng: random.Random) -> bool:
    if not plan.sub_microbatches:
        return False
    ref = rng.choice(rng.choice(plan.sub_microbatches).instances)
    field = rng.choice(("sample", "index", "units"))
    setattr(ref, field, getattr(ref, field) + rng.choice((-1, 1)))
    return True


def drop_instance(plan: pb.Plan, rng: random.Random) -> bool:
    if not plan.sub_microbatches:
        return False
    instances = rng.choice(plan.sub_microbatches).instances
    del instances[rng.randrange(len(instances))]
    return True


def shuffle_instances(plan: pb.Plan, rng: random.Random) -> bool:
    if not plan.sub_microbatches:
        return False
    sub = rng.choice(plan.sub_microbatches)
    instances = copies(sub.instances)
    rng.shuffle(instances)
    rewrite(sub.instances, instances)
    return True


def move_sub_microbatch(plan: pb.Plan, rng: random.Random) -> bool:
    if not plan.sub_microbatches:
        return False
    rng.choice(plan.sub_microbatches).microbatch += rng.choice((-1, 1))
    return True


def change_makespan(plan: pb.Plan, rng: random.Random) -> bool:
    plan.makespan_us += rng.choice((-1, 1))
    return True


def change_bound(plan: pb.Plan, rng: random.Random) -> bool:
    plan.lower_bound_us = rng.choice((-1, 0, 1, plan.lower_bound_us - 1, plan.makespan_us, plan.makespan_us + 1))
    return True


def call_optimal(plan: pb.Plan, rng: random.Random) -> bool:
    plan.search.optimal = rng.random() < 0.9
    return True


def cut_digest(plan: pb.Plan, rng: random.Random) -> bool:
    plan.digest = plan.digest[: rng.randrange(32)]
    return True


PLAN_MUTATIONS: dict[str, Callable[[pb.Plan, random.Random], bool]] = {
    mutation.__name__: mutation
    for mutation in (
        move_action,
        move_action_to_another_rank,
        drop_action,
        double_action,
        shorten_action,
        lengthen_action,
        start_action_earlier,
        start_action_later,
        swap_neighbours,
        swap_transfers,
        swap_consumers,
        change_peer,
        rename_module,
        change_kind,
        change_chunk,
        change_sub_microbatch,
        change_strategy,
        split_a_backward,
        change_bytes,
        drop_rank,
        renumber_rank,
        list_ranks_in_another_order,
        change_chunk_of_the_partition,
        drop_chunk,
        drop_sub_microbatch,
        double_sub_microbatch,
        change_instance,
        drop_instance,
        shuffle_instances,
        move_sub_microbatch,
        change_makespan,
        change_bound,
        call_optimal,
        cut_digest,
    )
}
