"""First priorities: orders of groups, chains and depths by hand, and guides that all decode."""

from __future__ import annotations

import numpy as np
from cases import job, module, request
from dip.bounds import fastest_times, longest_chains
from dip.partition import default_partition
from hypothesis import HealthCheck, given, settings
from random_work import Instance, instances

from planner_service.domain.graph import task_graph
from planner_service.search.decoders import NEVER, decode
from planner_service.search.schedule import Schedule
from planner_service.search.seeds import depths, group_orders, seed_guides, tails, topological

SLOW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(instances())
def test_every_seed_decodes_and_has_a_name_of_its_own(instance: Instance) -> None:
    graph = instance.graph()
    names = []
    for name, guide in seed_guides(graph, 0.2):
        names.append(name)
        assert sorted(guide.position.tolist()) == list(range(len(graph.need)))
        assert decode(graph, guide).makespan_us < NEVER
    assert len(set(names)) == len(names) > 10


@SLOW
@given(instances())
def test_the_first_seed_is_valid(instance: Instance) -> None:
    graph = instance.graph()
    _, guide = next(iter(seed_guides(graph)))
    assert not instance.faults(Schedule.of(instance.candidate(graph, guide)))


@SLOW
@given(instances())
def test_producers_come_before_consumers(instance: Instance) -> None:
    graph = task_graph(instance.work)
    place = np.argsort(topological(graph))
    depth = depths(graph)
    for edge in instance.work.edges:
        assert place[edge.producer] < place[edge.consumer]
        assert depth[edge.producer] < depth[edge.consumer]


def two_microbatches() -> Instance:
    spec = job([module("a", 2), module("lm", 2, inputs=["a"])], ranks=2)
    for m in spec.model.modules:
        del m.layers[0].cost.strategies[:]
    asked = request(spec, [[{"a": [64], "lm": [64]}], [{"lm": [640]}], [{"lm": [64]}]])
    asked.partition.CopyFrom(default_partition(spec))
    return Instance.of(asked)


def test_tails_are_the_longest_chains() -> None:
    """As the bound's chains count them, where every layer has one way and no backward is split."""
    instance = two_microbatches()
    work, graph = instance.work, task_graph(instance.work)
    times = fastest_times(work)
    chains = longest_chains(work, times)
    forward, backward = tails(graph)
    for c, time in enumerate(times):
        assert forward[c] == time.forward_us + chains.forward_tail_us[c]
        assert backward[c] == time.gradient_us + chains.backward_tail_us[c]


def test_groups_are_ordered_by_load() -> None:
    orders = group_orders(task_graph(two_microbatches().work))
    # Group 2 has least to do, then 0 (an image beside the same text), then 1.
    assert {name: order.tolist() for name, order in orders.items()} == {
        "natural": [0, 1, 2],
        "rising": [2, 0, 1],
        "hill": [2, 1, 0],
        "falling": [1, 0, 2],
    }
