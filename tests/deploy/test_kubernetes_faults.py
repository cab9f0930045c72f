"""The checks of deployment files find what is wrong: each of them on files that were spoiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from deploy.reach import Peer, reaches
from deploy.rendering import find, needs_kubectl, overlay

from deploy import hardening, kinds, running, wiring

if TYPE_CHECKING:
    from collections.abc import Callable

    from deploy.rendering import Object

pytestmark = needs_kubectl


def template(objects: list[Object], kind: str, name: str) -> Any:
    return find(objects, kind, name)["spec"]["template"]


def planner(objects: list[Object]) -> Any:
    return template(objects, "Deployment", "dip-planner")["spec"]["containers"][0]


def sidecar(objects: list[Object]) -> Any:
    return template(objects, "Job", "dip-trainer")["spec"]["initContainers"][0]


def trainer(objects: list[Object]) -> Any:
    return template(objects, "Job", "dip-trainer")["spec"]["containers"][0]


def settings(objects: list[Object]) -> Any:
    (found,) = [each["data"] for each in objects if each["kind"] == "ConfigMap" and "DIP_STORE" in each["data"]]
    return found


def variable(objects: list[Object], name: str) -> Any:
    (found,) = [each for each in trainer(objects)["env"] if each["name"] == name]
    return found


def endpoint(objects: list[Object]) -> Any:
    return variable(objects, "DIP_PLANNER_ENDPOINT")


def without(objects: list[Object], name: str) -> None:
    trainer(objects)["env"].remove(variable(objects, name))


def redis(objects: list[Object]) -> Any:
    return template(objects, "Deployment", "dip-redis")


def secret_of_redis(objects: list[Object]) -> Any:
    (found,) = [each["secret"] for each in redis(objects)["spec"]["volumes"] if "secret" in each]
    return found


def training(objects: list[Object]) -> Any:
    return template(objects, "Job", "dip-trainer")


def service(objects: list[Object], name: str) -> Any:
    return find(objects, "Service", name)["spec"]


def scaler(objects: list[Object]) -> Any:
    return find(objects, "ScaledObject", "dip-planner")["spec"]


def monitor(objects: list[Object]) -> Any:
    return find(objects, "PodMonitor", "dip-planner")["spec"]


def train_job(objects: list[Object]) -> Any:
    return find(objects, "TrainJob", "train-vlm")


def runtime(objects: list[Object]) -> Any:
    return find(objects, "ClusterTrainingRuntime", "dip-torch")["spec"]


def node(objects: list[Object]) -> Any:
    (job,) = runtime(objects)["template"]["spec"]["replicatedJobs"]
    return job["template"]["spec"]["template"]["spec"]


HARDENING: list[tuple[str, Any, str]] = [
    ("shared", lambda it: redis(it)["spec"].pop("securityContext"), "runs as root"),
    ("shared", lambda it: planner(it)["securityContext"].update(readOnlyRootFilesystem=False), "may write"),
    ("sidecar", lambda it: sidecar(it)["securityContext"].pop("capabilities"), "planner keeps capabilities"),
    ("sidecar", lambda it: trainer(it)["resources"].pop("limits"), "trainer has no memory limit"),
    ("kubeflow", lambda it: node(it).pop("automountServiceAccountToken"), "gets a token"),
    ("shared", lambda it: it.remove(find(it, "ServiceAccount", "dip-planner")), "names the service account"),
]

WIRING: list[tuple[str, Any, str]] = [
    ("sidecar", lambda it: trainer(it)["volumeMounts"][0].update(name="nothing"), "which is no volume"),
    (
        "shared",
        lambda it: service(it, "dip-planner")["selector"].update({"app.kubernetes.io/name": "x"}),
        "Service/dip-planner: selects no pod",
    ),
    ("shared", lambda it: service(it, "dip-redis")["ports"][0].update(targetPort="tls"), "no port tls"),
    ("shared", lambda it: monitor(it)["podMetricsEndpoints"][0].update(port="web"), "no port web"),
    ("shared", lambda it: redis(it)["metadata"].update(labels={}), "selects no pod"),
    ("shared", lambda it: secret_of_redis(it)["items"][0].update(key="acl"), "dip-redis has no acl"),
    ("shared", lambda it: scaler(it)["scaleTargetRef"].update(name="x"), "scales nothing"),
    (
        "shared",
        lambda it: planner(it)["envFrom"][0]["configMapRef"].update(name="dip-planner"),
        "there is no dip-planner",
    ),
    ("kubeflow", lambda it: train_job(it)["spec"]["runtimeRef"].update(name="x"), "no runtime"),
    ("beside-rank-0", lambda it: training(it)["metadata"]["labels"].clear(), "waits beside no pod"),
]

RUNNING: list[tuple[str, Any, str]] = [
    ("shared", lambda it: settings(it).update(DIP_LISTENS="0.0.0.0:1"), "no settings of the planner: listens"),
    ("shared", lambda it: settings(it).update(DIP_DRAIN_MS="soon"), "DIP_DRAIN_MS: holds 'soon'"),
    ("shared", lambda it: settings(it).update(DIP_DRAIN_MS="60000"), "has 45 s to end and needs 75"),
    ("shared", lambda it: settings(it).pop("DIP_ACCESS_FILE"), "anybody there may call"),
    ("shared", lambda it: settings(it).pop("DIP_TLS_CERT_FILE"), "TLS needs both"),
    ("shared", lambda it: settings(it).update(DIP_LISTEN="0.0.0.0:5000"), "the settings say"),
    ("shared", lambda it: settings(it).update(DIP_HEALTH_LISTEN="127.0.0.1:50062"), "nobody reaches"),
    ("shared", lambda it: settings(it).update(DIP_STORE="redis://planner@elsewhere:6379/0"), "there is no Service"),
    ("shared", lambda it: settings(it).update(DIP_STORE="memory://"), "never two in an update"),
    ("shared", lambda it: settings(it).update(DIP_ACCESS_FILE="/etc/access.toml"), "nothing is mounted at"),
    ("shared", lambda it: settings(it).update(DIP_TLS_KEY_FILE="/etc/dip/tls/key.pem"), "brings no"),
    ("shared", lambda it: planner(it)["readinessProbe"]["grpc"].update(service="planner"), "readinessProbe asks"),
    ("shared", lambda it: planner(it)["livenessProbe"]["grpc"].update(service=running.SERVICE), "livenessProbe asks"),
    ("shared", lambda it: planner(it)["resources"]["limits"].update(memory="2Gi"), "4 workers need"),
    ("beside-rank-0", lambda it: settings(it).pop("DIP_MAX_STORE_BYTES"), "keeps 4294967296 bytes in memory"),
    ("shared", lambda it: planner(it)["resources"]["limits"].pop("cpu"), "set a CPU limit"),
    ("sidecar", lambda it: sidecar(it).pop("restartPolicy"), "is no sidecar"),
    ("sidecar", lambda it: sidecar(it).pop("startupProbe"), "startupProbe is missing"),
    ("sidecar", lambda it: sidecar(it).update(readinessProbe={}), "readinessProbe is there"),
    ("sidecar", lambda it: endpoint(it).update(value="unix:///run/other.sock"), "no planner of its pod"),
    ("beside-rank-0", lambda it: endpoint(it).update(value="planner:50061"), "there is no Service"),
    (
        "beside-rank-0",
        lambda it: variable(it, "DIP_TLS_CA_FILE").update(name="DIP_CA_FILE"),
        "no variables of an agent",
    ),
    ("beside-rank-0", lambda it: without(it, "DIP_TLS_CA_FILE"), "in the clear"),
    ("beside-rank-0", lambda it: without(it, "DIP_JOB_ID"), "another job"),
    ("sidecar", lambda it: without(it, "DIP_CONNECT_WAIT_S"), "keeps the default partition"),
    ("beside-rank-0", lambda it: find(it, "Deployment", "dip-planner")["spec"].update(replicas=2), "must be one"),
]

KINDS: list[tuple[str, Any, str]] = [
    ("shared", lambda it: planner(it).update(livenesProbe={}), "livenesProbe"),
    ("shared", lambda it: planner(it)["ports"][0].update(containerPort="50061"), "is not of type 'integer'"),
    ("shared", lambda it: scaler(it).update(minReplicas=2), "minReplicas"),
    ("shared", lambda it: scaler(it)["triggers"][0]["metadata"].update(threshold=3), "is not of type 'string'"),
    ("shared", lambda it: monitor(it).pop("selector"), "'selector' is a required"),
    ("kubeflow", lambda it: runtime(it)["mlPolicy"].update(nodes=2), "spec/mlPolicy/nodes: unknown"),
    ("kubeflow", lambda it: runtime(it)["mlPolicy"]["torch"].update(numProcPerNode=1), "numProcPerNode: unknown"),
    ("kubeflow", lambda it: train_job(it)["spec"].pop("runtimeRef"), "runtimeRef"),
    ("kubeflow", lambda it: train_job(it)["spec"]["trainer"].update(numNodes="2"), "numNodes"),
    ("kubeflow", lambda it: train_job(it).update(apiVersion="trainer.kubeflow.org/v1"), "is of"),
]


def spoiled(name: str, spoil: Callable[[list[Object]], Any]) -> list[Object]:
    objects = overlay(name)
    spoil(objects)
    return objects


def is_found(found: list[str], expected: str) -> bool:
    return any(expected in each for each in found)


@pytest.mark.parametrize(("name", "spoil", "expected"), HARDENING, ids=[case[2] for case in HARDENING])
def test_what_a_pod_may_do_too_much(name: str, spoil: Callable[[list[Object]], Any], expected: str) -> None:
    found = hardening.problems(spoiled(name, spoil))
    assert is_found(found, expected), found


@pytest.mark.parametrize(("name", "spoil", "expected"), WIRING, ids=[case[2] for case in WIRING])
def test_what_is_named_and_not_there(name: str, spoil: Callable[[list[Object]], Any], expected: str) -> None:
    found = wiring.problems(spoiled(name, spoil))
    assert is_found(found, expected), found


@pytest.mark.parametrize(("name", "spoil", "expected"), RUNNING, ids=[case[2] for case in RUNNING])
def test_what_planners_and_trainers_stumble_over(
    name: str, spoil: Callable[[list[Object]], Any], expected: str
) -> None:
    found = running.problems(spoiled(name, spoil))
    assert is_found(found, expected), found


@pytest.mark.parametrize(("name", "spoil", "expected"), KINDS, ids=[case[2] for case in KINDS])
def test_what_the_cluster_refuses(name: str, spoil: Callable[[list[Object]], Any], expected: str) -> None:
    found = kinds.problems(spoiled(name, spoil), kinds.NEWEST)
    assert is_found(found, expected), found


def test_a_native_sidecar_is_unknown_to_a_kubernetes_that_lacks_them() -> None:
    assert is_found(kinds.problems(overlay("sidecar"), "1.27"), "restartPolicy")


def test_policies_that_let_everybody_in_or_nobody() -> None:
    objects = overlay("shared")
    client = Peer(labels={"dip-planner-client": "true"})
    server = Peer(labels={"app.kubernetes.io/name": "dip-planner"})
    policy = find(objects, "NetworkPolicy", "dip-planner")["spec"]
    policy["ingress"][0].pop("from")
    assert reaches(objects, Peer(labels={}, namespace="other"), server, 50061)
    policy["ingress"] = []
    assert not reaches(objects, client, server, 50061)
    objects.remove(find(objects, "NetworkPolicy", "dip-planner"))
    assert reaches(objects, Peer(labels={}, namespace="other"), server, 9464)
