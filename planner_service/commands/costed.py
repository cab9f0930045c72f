"""Reads what has costs, in any of its forms, as the request to plan one batch of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dip.errors import InvalidRequestError
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_job_spec

from planner_service.commands.failure import CommandError
from planner_service.commands.files import STANDARD_STREAM, as_message, read_json, read_toml
from planner_service.costs.gpus import read_gpus
from planner_service.costs.job import job_spec, typical_batch
from planner_service.costs.reading import read_description
from planner_service.costs.tables import DescriptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planner_service.costs.description import Description

T = TypeVar("T")


def read_costed(path: str, gpus: str | None = None) -> pb.PlanRequest:
    """Read a description, a JobSpec or a PlanRequest; one without a batch gets a typical one.

    Parameters
    ----------
    path
        The file: TOML where its name ends in ``.toml``, else JSON.
    gpus
        A TOML file of more GPUs for a description to name.

    Raises
    ------
    CommandError
        Where a file cannot be read or is none of these. A request is not validated.
    """
    if path.endswith(".toml"):
        return _from_description(path, read_toml(path), gpus)
    value = read_json(path)
    if "modules" in value:
        return _from_description(path, value, gpus)
    if gpus:
        raise CommandError(f"--gpus is {gpus}, must be left out: {path} is no description that could name a GPU")
    if "model" in value:
        request = pb.PlanRequest(job=as_message(value, pb.JobSpec(), path))
    else:
        request = as_message(value, pb.PlanRequest(), path)
    if not request.HasField("batch"):
        try:
            validate_job_spec(request.job)
        except InvalidRequestError as error:
            raise CommandError(f"{path} breaks the contract:\n{error}") from error
        request.batch.CopyFrom(typical_batch(request.job))
    return request


def _from_description(path: str, tables: Mapping[str, Any], gpus: str | None) -> pb.PlanRequest:
    own = None
    if gpus:
        held = read_toml(gpus)
        own = _explained(gpus, "file of GPUs", lambda: read_gpus(held))
    description = _explained(path, "description", lambda: read_description(tables, own))
    measured = _measured_jobs(description, path)
    job = _explained(path, "description", lambda: job_spec(description, measured))
    return pb.PlanRequest(job=job, batch=typical_batch(job, description))


def _measured_jobs(description: Description, path: str) -> dict[str, pb.JobSpec]:
    """Read the jobs with measured costs that modules name, relative to the description."""
    folder = Path() if path == STANDARD_STREAM else Path(path).parent
    found: dict[str, pb.JobSpec] = {}
    for name in dict.fromkeys(module.measured for module in description.modules if module.measured):
        source = str(folder / name)
        value = read_json(source)
        if "job" in value:
            found[name] = as_message(value, pb.PlanRequest(), source).job
        else:
            found[name] = as_message(value, pb.JobSpec(), source)
    return found


def _explained(path: str, what: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except DescriptionError as error:
        listed = "\n".join(f"  {fault}" for fault in error.faults)
        raise CommandError(f"{path} is no {what} that can be used:\n{listed}") from error
