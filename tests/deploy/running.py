"""Whether planners and trainers of a deployment would start and find each other: settings, probes, ends, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploy.quantities import in_bytes, in_cores
from deploy.wiring import SECRETS
from deploy.workloads import FIELD, Container, planners, trainers
from dip.planner.v1 import planner_pb2 as pb
from pydantic import ValidationError

from planner_service.access.errors import AccessError
from planner_service.access.exposure import check_exposure
from planner_service.pool.cores import default_workers
from planner_service.settings import PREFIX, Settings, SettingsError, load_settings
from trainer_agent.settings import VARIABLES, AgentSettings

if TYPE_CHECKING:
    from deploy.rendering import Object

SERVICE = pb.DESCRIPTOR.services_by_name["PlannerService"].full_name

FILES = (
    *(f"{PREFIX}{name.upper()}" for name in Settings.model_fields if name.endswith("_file")),
    *(each.name for each in VARIABLES if each.name.endswith("_FILE")),
)
"""Settings of planners and agents that name a file."""
UNIX = "unix://"
ENDING_S = 10
"""What the end of the workers and of the store may take after the drain."""
PLANNER_START_S = 30
"""What a planner that is started with its trainers may take until it answers."""
SERVICE_BYTES = 2 * 2**30
"""What a planner may take beside its workers: plans in memory and the service itself."""


def problems(objects: list[Object]) -> list[str]:
    """Say what a planner or a trainer of a deployment would stumble over."""
    found = []
    for container in planners(objects):
        try:
            settings = planner_settings(container.settings)
        except (SettingsError, AccessError) as error:
            found.append(f"{container.name}: {error}")
            continue
        faults = [
            *_ports(container, settings),
            *_probes(container, settings),
            *_end(container, settings),
            *_memory(container, settings),
            *_files(container),
            *_store(container, settings, objects),
        ]
        found += [f"{container.name}: {fault}" for fault in faults]
    for container in trainers(objects):
        found += [f"{container.name}: {fault}" for fault in [*_agent(container, objects), *_files(container)]]
    return found


def planner_settings(variables: dict[str, str]) -> Settings:
    """Read variables as a planner's environment, and refuse what a planner refuses at its start.

    Raises
    ------
    SettingsError, AccessError
    """
    named = {name.removeprefix(PREFIX).lower(): value for name, value in variables.items()}
    unknown = named.keys() - Settings.model_fields.keys()
    if unknown:
        raise SettingsError(f"no settings of the planner: {', '.join(sorted(unknown))}")
    settings = load_settings(**named)
    check_exposure(settings)
    return settings


def port_of(address: str) -> int | None:
    """Return the port of an address; None: a UNIX socket."""
    return None if address.startswith(UNIX) else int(address.rpartition(":")[2])


def _ports(container: Container, settings: Settings) -> list[str]:
    named = {port["name"]: port["containerPort"] for port in container.raw.get("ports", [])}
    said = {"grpc": settings.listen, "health": settings.health_listen, "metrics": settings.metrics_listen}
    right = {name: port for name, address in said.items() if (port := port_of(address)) is not None}
    found = [f"ports {named}, the settings say {right}"] if named != right else []
    found += [
        f"{name} listens on {address}, where nobody reaches a pod"
        for name, address in said.items()
        if not address.startswith((UNIX, "0.0.0.0:"))
    ]
    return found


def _probes(container: Container, settings: Settings) -> list[str]:
    raw = container.raw
    found = []
    # The process must be started again where it hangs, and not where its store is away.
    wanted = {"startupProbe": "", "livenessProbe": "", "readinessProbe": SERVICE}
    is_sidecar = raw in container.pod.spec.get("initContainers", [])
    if is_sidecar:
        # A planner that waits for its Redis must not make its trainer's pod unready.
        del wanted["readinessProbe"]
        if raw.get("restartPolicy") != "Always":
            found.append("is no sidecar: the trainer would wait for its end")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = raw.get(probe)
        if (asked is None) != (probe not in wanted):
            found.append(f"{probe} is {'missing' if asked is None else 'there'}")
        elif asked is not None and asked.get("grpc") != {
            "port": port_of(settings.health_listen),
            "service": wanted[probe],
        }:
            found.append(f"{probe} asks {asked.get('grpc')}")
    return found


def _end(container: Container, settings: Settings) -> list[str]:
    given = container.pod.spec.get("terminationGracePeriodSeconds", 30)
    before = container.raw.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    needed = before + settings.drain_ms / 1000 + ENDING_S
    return [f"has {given} s to end and needs {needed:.0f}"] if given < needed else []


def _memory(container: Container, settings: Settings) -> list[str]:
    limits = container.raw.get("resources", {}).get("limits", {})
    if "cpu" not in limits and not settings.search_workers:
        return ["has as many workers as the node's cores say: set a CPU limit or DIP_SEARCH_WORKERS"]
    workers = settings.search_workers or default_workers(in_cores(limits["cpu"]))
    needed = workers * settings.worker_memory_bytes + SERVICE_BYTES
    given = in_bytes(limits.get("memory", "0"))
    found = [f"{workers} workers need {needed} bytes, the limit is {given}"] if given < needed else []
    if settings.store == "memory://" and settings.max_store_bytes > SERVICE_BYTES // 2:
        found.append(
            f"keeps {settings.max_store_bytes} bytes in memory, {SERVICE_BYTES // 2} are its share of the limit"
        )
    return found


def _files(container: Container) -> list[str]:
    found = []
    for name in FILES:
        path = container.settings.get(name)
        if path is None:
            continue
        volume = container.mounted(path)
        if volume is None:
            found.append(f"{name}: nothing is mounted at {path}")
            continue
        secret = volume["secret"]
        brought = {item["path"] for item in secret.get("items", [])} or SECRETS[secret["secretName"]]
        if path.rpartition("/")[2] not in brought:
            found.append(f"{name}: {secret['secretName']} brings no {path}")
    return found


def _store(container: Container, settings: Settings, objects: list[Object]) -> list[str]:
    (owner,) = [each for each in objects if f"{each['kind']}/{each['metadata']['name']}" == container.pod.owner]
    if settings.store == "memory://":
        alone = owner["spec"].get("replicas") == 1 and owner["spec"]["strategy"] == {"type": "Recreate"}
        return [] if alone else ["planners without a Redis must be one, and never two in an update"]
    host = settings.store.rpartition("@")[2].partition("/")[0]
    return [] if host in services(objects) else [f"there is no Service {host}"]


def services(objects: list[Object]) -> set[str]:
    """Return what Services of a deployment are called by: host and port."""
    return {
        f"{each['metadata']['name']}:{port['port']}"
        for each in objects
        if each["kind"] == "Service"
        for port in each["spec"]["ports"]
    }


def _agent(container: Container, objects: list[Object]) -> list[str]:
    given = container.settings
    unknown = given.keys() - {each.name for each in VARIABLES}
    if unknown:
        return [f"no variables of an agent: {', '.join(sorted(unknown))}"]
    try:
        settings = AgentSettings.from_environment(
            {name: "job" if value == FIELD else value for name, value in given.items()}
        )
    except (ValueError, ValidationError) as error:
        return [str(error)]
    found = []
    for endpoint in settings.endpoints or ():
        if endpoint.target.startswith(UNIX):
            found += _socket(container, endpoint.target, objects)
        elif endpoint.target not in services(objects):
            found.append(f"there is no Service {endpoint.target}")
        elif not settings.files.tls:
            found.append("talks to its planner in the clear")
    if settings.connect_wait_s < PLANNER_START_S:
        found.append("keeps the default partition where its planner comes up a little later")
    if settings.job_id is None:
        found.append("is another job after every start")
    return found


def _socket(container: Container, target: str, objects: list[Object]) -> list[str]:
    """Compare with the planner of the same pod."""
    path = target.removeprefix(UNIX)
    volume = container.mounted(path)
    beside = [each for each in planners(objects) if each.pod.owner == container.pod.owner]
    if not any(each.settings.get("DIP_LISTEN") == target and each.mounted(path) == volume for each in beside):
        return [f"no planner of its pod listens on {target}"]
    return [] if volume and volume["emptyDir"].get("medium") == "Memory" else [f"{target} is on no volume of the pod"]
