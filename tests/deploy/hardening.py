"""What every pod must keep from whoever breaks into it, as far as its file says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploy.workloads import pods

if TYPE_CHECKING:
    from deploy.rendering import Object
    from deploy.workloads import Pod


def problems(objects: list[Object]) -> list[str]:
    """Say what a pod or container may do and need not, or take without a limit."""
    return [f"{pod.owner}: {each}" for pod in pods(objects) for each in _of_pod(pod, objects)]


def _of_pod(pod: Pod, objects: list[Object]) -> list[str]:
    security = pod.spec.get("securityContext", {})
    found = {
        "runs as root": security.get("runAsNonRoot") is not True or not security.get("runAsUser"),
        "has no numeric group": not security.get("runAsGroup") or not security.get("fsGroup"),
        "has no seccomp profile": security.get("seccompProfile") != {"type": "RuntimeDefault"},
        "gets a token of the API server": pod.spec.get("automountServiceAccountToken") is not False,
        "gets variables of Services": pod.spec.get("enableServiceLinks") is not False,
        "is on the node's own network": any(pod.spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")),
        "mounts a directory of the node": any("hostPath" in volume for volume in pod.spec.get("volumes", [])),
    }
    account = pod.spec.get("serviceAccountName")
    accounts = {each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"}
    if account is not None and account not in accounts:
        found[f"names the service account {account}, which is not there"] = True
    inside = [f"{raw['name']} {fault}" for raw in pod.containers for fault in _of_container(raw)]
    return [fault for fault, is_there in found.items() if is_there] + inside


def _of_container(raw: Object) -> list[str]:
    security = raw.get("securityContext", {})
    resources = raw.get("resources", {})
    found = {
        "may gain privileges": security.get("allowPrivilegeEscalation") is not False
        or bool(security.get("privileged")),
        "may write to its image": security.get("readOnlyRootFilesystem") is not True,
        "keeps capabilities": security.get("capabilities") != {"drop": ["ALL"]},
        "runs as a user of its own": "runAsUser" in security,
        "requests no CPU or memory": not {"cpu", "memory"} <= resources.get("requests", {}).keys(),
        "has no memory limit": "memory" not in resources.get("limits", {}),
    }
    return [fault for fault, is_there in found.items() if is_there]
