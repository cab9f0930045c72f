"""The pods that deployment files make, and what their containers are told, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deploy.rendering import Object

FIELD = "<field of the pod>"
"""Stands for the value of a variable that Kubernetes fills in."""

TRAINER_OF_SHARED = {
    "DIP_PLANNER_ENDPOINT": "dip-planner:50061",
    "DIP_TLS_CA_FILE": "/etc/dip/ca/ca.crt",
    "DIP_TOKEN_FILE": "/etc/dip/token/token",
}
"""What the guide tells users of shared planners to set."""

_ADDED_LABELS = {
    # Kubernetes and JobSet put them on the pods that they make.
    "Job": {"batch.kubernetes.io/job-name": "job", "batch.kubernetes.io/job-completion-index": "0"},
    "ClusterTrainingRuntime": {"jobset.sigs.k8s.io/jobset-name": "job"},
}


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod template.

    Parameters
    ----------
    owner
        Kind and name of the object that it is in.
    labels
        Its labels, and those that its controller adds.
    spec
        As it is in the file.
    """

    owner: str
    labels: dict[str, str]
    spec: Object

    @property
    def containers(self) -> list[Object]:
        """All containers, the sidecars first."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container of a pod.

    Parameters
    ----------
    pod
        The pod that it is in.
    raw
        As it is in the file.
    environment
        Its variables.
    """

    pod: Pod
    raw: Object
    environment: dict[str, str]

    @property
    def name(self) -> str:
        """The pod's owner and the container's name."""
        return f"{self.pod.owner}: {self.raw['name']}"

    @property
    def is_planner(self) -> bool:
        """Whether it runs ``dip serve``."""
        return self.raw.get("command", [])[:2] == ["dip", "serve"]

    @property
    def is_trainer(self) -> bool:
        """Whether a trainer runs in it."""
        return self.raw.get("command", [])[:1] == ["torchrun"]

    @property
    def settings(self) -> dict[str, str]:
        """Its variables of DIP Planner."""
        return {name: value for name, value in self.environment.items() if name.startswith("DIP_")}

    def mounted(self, path: str) -> Object | None:
        """Return the volume that a file is on, if it is on one."""
        for mount in self.raw.get("volumeMounts", []):
            if path == mount["mountPath"] or path.startswith(mount["mountPath"].rstrip("/") + "/"):
                (volume,) = [each for each in self.pod.spec["volumes"] if each["name"] == mount["name"]]
                return dict(volume)
        return None


def pods(objects: list[Object]) -> list[Pod]:
    """Return the pods of all Deployments, Jobs and training runtimes."""
    return [
        Pod(
            owner=f"{each['kind']}/{each['metadata']['name']}",
            labels=template.get("metadata", {}).get("labels", {}) | _ADDED_LABELS.get(each["kind"], {}),
            spec=template["spec"],
        )
        for each in objects
        for template in _templates(each)
    ]


def containers(objects: list[Object]) -> list[Container]:
    """Return all containers of all pods."""
    maps = {each["metadata"]["name"]: each.get("data", {}) for each in objects if each["kind"] == "ConfigMap"}
    return [
        Container(pod=pod, raw=raw, environment=_environment(raw, maps))
        for pod in pods(objects)
        for raw in pod.containers
    ]


def planners(objects: list[Object]) -> list[Container]:
    """Return the containers that planners run in."""
    return [each for each in containers(objects) if each.is_planner]


def trainers(objects: list[Object]) -> list[Container]:
    """Return the containers that trainers run in."""
    return [each for each in containers(objects) if each.is_trainer]


def _templates(each: Object) -> list[Any]:
    if each["kind"] in ("Deployment", "Job"):
        return [each["spec"]["template"]]
    if each["kind"] == "ClusterTrainingRuntime":
        return [job["template"]["spec"]["template"] for job in each["spec"]["template"]["spec"]["replicatedJobs"]]
    return []


def _environment(raw: Object, maps: dict[str, dict[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for source in raw.get("envFrom", []):
        found |= maps.get(source["configMapRef"]["name"], {})
    return found | {each["name"]: each.get("value", FIELD) for each in raw.get("env", [])}
