"""The compose file, read as compose reads it, and what could be wrong with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml
from deploy.quantities import in_bytes
from deploy.rendering import DEPLOY
from deploy.running import ENDING_S, FILES, SERVICE_BYTES, UNIX, planner_settings, port_of

from deploy import kinds
from planner_service.access.errors import AccessError
from planner_service.pool.cores import default_workers
from planner_service.settings import SettingsError
from trainer_agent.settings import VARIABLES, AgentSettings

if TYPE_CHECKING:
    from planner_service.settings import Settings

FILE = DEPLOY / "compose" / "compose.yaml"
_DEFAULT = re.compile(r"[$][{][A-Z_]+:-(?P<value>[^}]*)[}]")


def load() -> Any:
    """Return the file."""
    return yaml.safe_load(FILE.read_text())


def value_of(text: str) -> str:
    """Return what a text says where no variable of compose is set."""
    return _DEFAULT.sub(lambda match: match["value"], text)


def problems(project: Any) -> list[str]:
    """Say what is malformed, names what is not there, may do too much or would not start."""
    found = kinds.of_schema(project, kinds.validator("compose.json"))
    if found:
        return found
    for name, service in project["services"].items():
        faults = [*_names(project, service), *_rights(service)]
        environment = service.get("environment", {})
        if "DIP_LISTEN" in environment:
            faults += _planner(project, service)
        elif environment:
            faults += _trainer(project, service)
        found += [f"{name}: {fault}" for fault in faults]
    return found


def granted(project: Any, service: Any) -> dict[str, str]:
    """Return the files of secrets and configs of a service: path in the container -> file."""
    found = {}
    for kind in ("secrets", "configs"):
        for grant in service.get(kind, []):
            source, target = (grant, None) if isinstance(grant, str) else (grant["source"], grant.get("target"))
            known = project.get(kind, {}).get(source)
            found[target or f"/run/secrets/{source}"] = known["file"] if known else ""
    return found


def _names(project: Any, service: Any) -> list[str]:
    found = [f"{path} comes from nowhere" for path, file in granted(project, service).items() if not file]
    for volume in service.get("volumes", []):
        if volume.partition(":")[0] not in project.get("volumes", {}):
            found.append(f"{volume} is no volume")
    found += [f"{network} is no network" for network in service["networks"] if network not in project["networks"]]
    found += [f"waits for {other}" for other in service.get("depends_on", []) if other not in project["services"]]
    return found


def _rights(service: Any) -> list[str]:
    faults = {
        "runs as root": service.get("user", "0").startswith("0"),
        "may write to its image": service.get("read_only") is not True,
        "keeps capabilities": service.get("cap_drop") != ["ALL"],
        "may gain privileges": service.get("security_opt") != ["no-new-privileges:true"],
        "has no limits": not {"mem_limit", "pids_limit"} <= service.keys(),
        "is checked by nobody": not service.get("profiles") and not {"healthcheck", "restart"} <= service.keys(),
    }
    return [fault for fault, is_there in faults.items() if is_there]


def _planner(project: Any, service: Any) -> list[str]:
    environment = service["environment"]
    try:
        settings = planner_settings(environment)
    except (SettingsError, AccessError) as error:
        return [str(error)]
    there = granted(project, service)
    found = [
        f"{name}: nothing is at {environment[name]}" for name in FILES if environment.get(name, "") not in {"", *there}
    ]
    host = settings.store.rpartition("@")[2].partition(":")[0]
    if settings.store != "memory://" and not set(service["networks"]) & set(
        project["services"].get(host, {}).get("networks", [])
    ):
        found.append(f"reaches no {host}")
    published = {int(each.rpartition(":")[2]) for each in service.get("ports", [])}
    if published != {port_of(settings.metrics_listen)}:
        found.append(f"publishes {published}")
    if service["healthcheck"]["test"] != ["CMD", "dip", "health"]:
        found.append("is not asked for its health")
    return found + _limits(service, settings)


def _limits(service: Any, settings: Settings) -> list[str]:
    found = []
    workers = settings.search_workers or default_workers(float(value_of(service["cpus"])))
    if in_bytes(value_of(service["mem_limit"])) < workers * settings.worker_memory_bytes + SERVICE_BYTES:
        found.append(f"has no memory for {workers} workers")
    given = int(service.get("stop_grace_period", "10s").removesuffix("s"))
    if given < settings.drain_ms / 1000 + ENDING_S:
        found.append(f"has {given} s to end")
    return found


def _trainer(project: Any, service: Any) -> list[str]:
    environment = service["environment"]
    unknown = {name for name in environment if name.startswith("DIP_")} - {each.name for each in VARIABLES}
    if unknown:
        return [f"no variables of an agent: {', '.join(sorted(unknown))}"]
    try:
        settings = AgentSettings.from_environment(environment)
    except ValueError as error:
        return [str(error)]
    planners = [each for each in project["services"].values() if "DIP_LISTEN" in each.get("environment", {})]
    return [
        f"no planner listens on {endpoint}"
        for endpoint in settings.endpoints or ()
        if not any(
            each["environment"]["DIP_LISTEN"] == endpoint.target
            and _holder(each, endpoint.target) == _holder(service, endpoint.target)
            and each["user"] == service["user"]
            for each in planners
        )
    ]


def _holder(service: Any, target: str) -> str | None:
    """Return the volume that a socket is on."""
    for volume in service.get("volumes", []):
        name, path = volume.split(":")[:2]
        if target.removeprefix(UNIX).startswith(f"{path}/"):
            return str(name)
    return None
