"""Whether what the objects of a deployment say of each other is so: names, ports, labels, keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deploy.workloads import containers, pods

if TYPE_CHECKING:
    from deploy.rendering import Object
    from deploy.workloads import Pod

SECRETS = {
    "dip-planner-tls": {"tls.crt", "tls.key", "ca.crt"},
    "dip-planner-access": {"access.toml"},
    "dip-trainer-token": {"token"},
    "dip-redis": {"password", "users.acl"},
}
"""Secrets that operators make, with their keys, as deploy/README.md says."""


def problems(objects: list[Object]) -> list[str]:
    """Say what an object names that is not there."""
    return [*_volumes(objects), *_settings(objects), *_selectors(objects), *_ports(objects), *_targets(objects)]


def selects(selector: Object, labels: dict[str, str]) -> bool:
    """Whether a selector of labels, of the plain kind, chooses a pod."""
    assert selector.keys() <= {"matchLabels"}, f"unknown here: {selector}"
    return selector.get("matchLabels", {}).items() <= labels.items()


def selected(selector: Object, objects: list[Object]) -> list[Pod]:
    """Return the pods that a selector chooses."""
    return [pod for pod in pods(objects) if selects(selector, pod.labels)]


def _volumes(objects: list[Object]) -> list[str]:
    found = []
    for pod in pods(objects):
        volumes = {each["name"]: each for each in pod.spec.get("volumes", [])}
        mounts = [(raw["name"], mount) for raw in pod.containers for mount in raw.get("volumeMounts", [])]
        found += [
            f"{pod.owner}: {name} mounts {mount['name']}, which is no volume"
            for name, mount in mounts
            if mount["name"] not in volumes
        ]
        found += [
            f"{pod.owner}: nobody mounts {name}" for name in volumes.keys() - {each["name"] for _, each in mounts}
        ]
        # Rotated files arrive in directories alone.
        found += [f"{pod.owner}: {name} mounts a single file" for name, mount in mounts if "subPath" in mount]
        for volume in volumes.values():
            found += [f"{pod.owner}: {fault}" for fault in _source(volume, objects)]
    return found


def _source(volume: Object, objects: list[Object]) -> list[str]:
    if "secret" in volume:
        name, known = volume["secret"]["secretName"], SECRETS
    elif "configMap" in volume:
        name = volume["configMap"]["name"]
        known = {each["metadata"]["name"]: set(each["data"]) for each in objects if each["kind"] == "ConfigMap"}
    else:
        limited = volume.get("emptyDir", {}).get("sizeLimit")
        return [] if limited else [f"the volume {volume['name']} has no limit"]
    if name not in known:
        return [f"there is no {name}"]
    asked = {item["key"] for item in (volume.get("secret") or volume["configMap"]).get("items", [])}
    return [f"{name} has no {key}" for key in sorted(asked - known[name])]


def _settings(objects: list[Object]) -> list[str]:
    maps = {each["metadata"]["name"] for each in objects if each["kind"] == "ConfigMap"}
    return [
        f"{container.name}: there is no {source['configMapRef']['name']}"
        for container in containers(objects)
        for source in container.raw.get("envFrom", [])
        if source["configMapRef"]["name"] not in maps
    ]


def _selectors(objects: list[Object]) -> list[str]:
    found = []
    for each in objects:
        spec = each.get("spec", {})
        selector: Any = {
            "Service": {"matchLabels": spec.get("selector")},
            "NetworkPolicy": spec.get("podSelector"),
            "PodDisruptionBudget": spec.get("selector"),
            "PodMonitor": spec.get("selector"),
            "Deployment": spec.get("selector"),
        }.get(each["kind"])
        if selector is not None and not selected(selector, objects):
            found.append(f"{each['kind']}/{each['metadata']['name']}: selects no pod")
    for pod in pods(objects):
        for term in pod.spec.get("affinity", {}).get("podAffinity", {}).get(_REQUIRED, []):
            if not selected(term["labelSelector"], objects):
                found.append(f"{pod.owner}: waits beside no pod")
        for constraint in pod.spec.get("topologySpreadConstraints", []):
            if not selects(constraint["labelSelector"], pod.labels):
                found.append(f"{pod.owner}: spreads other pods")
    return found


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _ports(objects: list[Object]) -> list[str]:
    found = []
    for each in objects:
        if each["kind"] == "Service":
            asked = [port["targetPort"] for port in each["spec"]["ports"]]
            selector = {"matchLabels": each["spec"]["selector"]}
        elif each["kind"] == "PodMonitor":
            asked = [end["port"] for end in each["spec"]["podMetricsEndpoints"]]
            selector = each["spec"]["selector"]
        else:
            continue
        for pod in selected(selector, objects):
            named = {port["name"] for raw in pod.containers for port in raw.get("ports", [])}
            missing = [port for port in asked if port not in named]
            found += [f"{each['kind']}/{each['metadata']['name']}: {pod.owner} has no port {port}" for port in missing]
    return found


def _targets(objects: list[Object]) -> list[str]:
    there = {(each["kind"], each["metadata"]["name"]) for each in objects}
    found = []
    for each in objects:
        if each["kind"] == "ScaledObject" and ("Deployment", each["spec"]["scaleTargetRef"]["name"]) not in there:
            found.append("ScaledObject: scales nothing")
        if each["kind"] == "TrainJob" and ("ClusterTrainingRuntime", each["spec"]["runtimeRef"]["name"]) not in there:
            found.append("TrainJob: names no runtime")
        if each["kind"] == "Job" and ("Service", each["spec"]["template"]["spec"].get("subdomain")) not in there:
            found.append("Job: its pods have no names")
    return found
