"""What planners are scaled by is measured, by its name, and leaves a worker free for the next batch."""

from __future__ import annotations

import re

from deploy.quantities import in_cores
from deploy.rendering import find, needs_kubectl, overlay
from deploy.workloads import planners

from planner_service.metrics.catalogue import REGISTRY
from planner_service.pool.cores import default_workers

pytestmark = needs_kubectl


def test_the_query_asks_for_metrics_that_there_are() -> None:
    (trigger,) = find(overlay("shared"), "ScaledObject", "dip-planner")["spec"]["triggers"]
    asked = set(re.findall(r"dip_\w+", trigger["metadata"]["query"]))
    assert asked == {"dip_queue_batches", "dip_queue_claimed_batches"}
    assert asked <= {family.name for family in REGISTRY.collect()}


def test_every_planner_tells_of_the_whole_queue_so_none_is_counted_twice() -> None:
    (trigger,) = find(overlay("shared"), "ScaledObject", "dip-planner")["spec"]["triggers"]
    assert "sum(" not in trigger["metadata"]["query"]
    assert trigger["metadata"]["query"].count("max(") == 2
    assert trigger["metricType"] == "AverageValue"


def test_the_threshold_is_below_the_workers_of_a_planner() -> None:
    objects = overlay("shared")
    (trigger,) = find(objects, "ScaledObject", "dip-planner")["spec"]["triggers"]
    (planner,) = planners(objects)
    workers = default_workers(in_cores(planner.raw["resources"]["limits"]["cpu"]))
    assert 0 < float(trigger["metadata"]["threshold"]) < workers


def test_planners_go_slowly_and_the_deployment_leaves_their_number_to_keda() -> None:
    objects = overlay("shared")
    spec = find(objects, "ScaledObject", "dip-planner")["spec"]
    (policy,) = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]["policies"]
    assert (policy["type"], policy["value"]) == ("Pods", 1)
    assert 2 <= spec["minReplicaCount"] <= spec["maxReplicaCount"]
    assert "replicas" not in find(objects, "Deployment", "dip-planner")["spec"]
