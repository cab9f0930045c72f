"""What `kubectl apply -k` would send is valid, wired right, hardened, and made of settings that the code reads."""

from __future__ import annotations

import pytest
from deploy.quantities import in_bytes
from deploy.reach import Peer, reaches
from deploy.rendering import DEPLOY, DIRECTORIES, KUBERNETES, OVERLAYS, find, needs_kubectl, overlay, rendered
from deploy.workloads import containers, planners, pods, trainers

from deploy import hardening, kinds, running, wiring

pytestmark = needs_kubectl

PLANNER = Peer(labels={"app.kubernetes.io/name": "dip-planner", "dip-redis-client": "true"})
REDIS = Peer(labels={"app.kubernetes.io/name": "dip-redis"})
STRANGER = Peer(labels={"app.kubernetes.io/name": "web"})
PROMETHEUS = Peer(labels={}, namespace="monitoring")
DNS = Peer(labels={}, namespace="kube-system")
ELSEWHERE = Peer(labels={"dip-planner-client": "true", "dip-redis-client": "true"}, namespace="other")


@pytest.mark.parametrize("version", [kinds.OLDEST, kinds.NEWEST])
@pytest.mark.parametrize("directory", DIRECTORIES)
def test_objects_have_the_form_that_the_cluster_asks_for(directory: str, version: str) -> None:
    assert kinds.problems(rendered(directory), version) == []


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_objects_name_what_is_there(directory: str) -> None:
    assert wiring.problems(rendered(directory)) == []


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_pods_may_do_no_more_than_they_need(directory: str) -> None:
    assert hardening.problems(rendered(directory)) == []


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_planners_and_trainers_would_start_and_find_each_other(directory: str) -> None:
    assert running.problems(rendered(directory)) == []


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_overlay_has_a_planner_and_all_but_the_shared_one_a_training(name: str) -> None:
    objects = overlay(name)
    assert planners(objects)
    assert bool(trainers(objects)) == (name != "shared")


@pytest.mark.parametrize("name", OVERLAYS)
def test_images_are_set_by_kustomize_alone(name: str) -> None:
    images = {each.raw["image"] for each in containers(overlay(name))}
    assert images <= {
        "registry.example.com/dip-planner:0.1.0",
        "registry.example.com/dip-trainer:0.1.0",
        "valkey/valkey:8.1-alpine",
    }


def test_no_file_uses_fields_that_kustomize_gave_up() -> None:
    files = sorted(KUBERNETES.rglob("kustomization.yaml"))
    assert len(files) == len(DIRECTORIES) + 1  # and the component
    for path in files:
        text = path.read_text()
        for gone in ("commonLabels:", "patchesStrategicMerge:", "patchesJson6902:", "bases:", "vars:"):
            assert gone not in text, f"{path}: {gone}"


def test_the_planner_beside_rank_0_is_reached_by_trainers_and_prometheus_alone() -> None:
    objects = overlay("beside-rank-0")
    (planner,) = [pod for pod in pods(objects) if pod.owner == "Deployment/dip-planner"]
    (trainer,) = [Peer(labels=pod.labels) for pod in pods(objects) if pod.owner == "Job/dip-trainer"]
    target = Peer(labels=planner.labels)
    assert reaches(objects, trainer, target, 50061)
    assert reaches(objects, PROMETHEUS, target, 9464)
    assert not reaches(objects, trainer, target, 9464)
    assert not reaches(objects, PROMETHEUS, target, 50061)
    for other in (STRANGER, ELSEWHERE):
        assert not reaches(objects, other, target, 50061)
        assert not reaches(objects, other, target, 9464)
    assert not reaches(objects, target, STRANGER, 443)
    assert reaches(objects, trainer, trainer, 34567)
    assert not reaches(objects, STRANGER, trainer, 29400)


def test_the_planner_follows_the_first_pod_of_the_training() -> None:
    spec = find(overlay("beside-rank-0"), "Deployment", "dip-planner")["spec"]["template"]["spec"]
    (term,) = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"]["matchLabels"]["batch.kubernetes.io/job-completion-index"] == "0"


@pytest.mark.parametrize("name", ["sidecar", "kubeflow"])
def test_redis_is_reached_by_pods_with_a_planner_alone(name: str) -> None:
    objects = overlay(name)
    (trainer,) = [Peer(labels=each.pod.labels) for each in trainers(objects)]
    assert reaches(objects, trainer, REDIS, 6379)
    assert reaches(objects, trainer, DNS, 53, "UDP")
    assert reaches(objects, PROMETHEUS, trainer, 9464)
    assert reaches(objects, trainer, trainer, 34567)
    for other in (STRANGER, ELSEWHERE, PROMETHEUS):
        assert not reaches(objects, other, REDIS, 6379)
        assert not reaches(objects, other, trainer, 50062)
    assert not reaches(objects, REDIS, STRANGER, 443)


def test_shared_planners_are_reached_by_clients_and_reach_redis_and_dns() -> None:
    objects = overlay("shared")
    client = Peer(labels={"dip-planner-client": "true"})
    (planner,) = [Peer(labels=each.pod.labels) for each in planners(objects)]
    assert planner.labels.items() >= PLANNER.labels.items()
    assert reaches(objects, client, planner, 50061)
    assert reaches(objects, PROMETHEUS, planner, 9464)
    assert reaches(objects, planner, REDIS, 6379)
    assert reaches(objects, planner, DNS, 53, "UDP")
    assert reaches(objects, planner, DNS, 53, "TCP")
    assert not reaches(objects, planner, STRANGER, 443)
    assert not reaches(objects, client, REDIS, 6379)
    for other in (STRANGER, ELSEWHERE):
        assert not reaches(objects, other, planner, 50061)


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_no_disruption_budget_stops_a_node_from_being_emptied(directory: str) -> None:
    for each in rendered(directory):
        if each["kind"] == "PodDisruptionBudget":
            assert each["spec"]["maxUnavailable"] == 1
            assert "minAvailable" not in each["spec"]


def test_redis_is_set_up_as_planners_need_it() -> None:
    lines = (KUBERNETES / "base/redis/valkey.conf").read_text().splitlines()
    options = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    assert options["maxmemory-policy"] == "noeviction"
    assert (options["appendonly"], options["appendfsync"]) == ("yes", "everysec")
    (container,) = containers(rendered("base/redis"))
    assert in_bytes(container.raw["resources"]["limits"]["memory"]) >= 2 * in_bytes(options["maxmemory"])
    for path in (options["aclfile"], options["dir"]):
        assert container.mounted(path), path


def test_sidecars_of_both_kinds_are_the_same() -> None:
    (plain,), (kubeflow,) = planners(overlay("sidecar")), planners(overlay("kubeflow"))
    assert plain.raw == kubeflow.raw
    volumes = [{each["name"]: each for each in side.pod.spec["volumes"]} for side in (plain, kubeflow)]
    assert volumes[0] == volumes[1]
    assert plain.pod.spec["securityContext"] == kubeflow.pod.spec["securityContext"]


def test_trainers_hold_no_secret_but_their_token() -> None:
    for name in OVERLAYS:
        for container in trainers(overlay(name)):
            volumes = {each["name"]: each.get("secret") for each in container.pod.spec["volumes"]}
            held = [secret for mount in container.raw["volumeMounts"] if (secret := volumes[mount["name"]])]
            for secret in held:
                if secret["secretName"] == "dip-planner-tls":
                    assert [item["key"] for item in secret["items"]] == ["ca.crt"]
                else:
                    assert secret["secretName"] == "dip-trainer-token"
            assert bool(held) == (name == "beside-rank-0")


def test_the_guide_says_how_each_secret_is_made() -> None:
    guide = (DEPLOY / "README.md").read_text()
    for name, keys in wiring.SECRETS.items():
        (command,) = [line for line in guide.splitlines() if f"create secret generic {name} " in line]
        for key in keys:
            assert f"/{key}" in command, f"{name}: {key}"
