"""Whether objects have the form that the cluster asks for: Kubernetes' own, Kubeflow Trainer's, and a few others'."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import kubernetes_validate
from kubeflow_trainer_api.models.trainer_v1alpha1_cluster_training_runtime import TrainerV1alpha1ClusterTrainingRuntime
from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob
from pydantic import ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.rendering import Object

OLDEST, NEWEST = "1.30", "1.37"
"""Versions of Kubernetes. Before, native sidecars or a preStop that sleeps are not there unless asked for."""

KUBEFLOW: dict[str, Any] = {
    "ClusterTrainingRuntime": TrainerV1alpha1ClusterTrainingRuntime,
    "TrainJob": TrainerV1alpha1TrainJob,
}
OTHERS = {"ScaledObject": "scaled-object.json", "PodMonitor": "pod-monitor.json"}


def problems(objects: list[Object], version: str) -> list[str]:
    """Say which fields are unknown, missing or of a wrong type."""
    return [f"{each['kind']}/{each['metadata']['name']}: {fault}" for each in objects for fault in _of(each, version)]


def of_schema(value: Any, validator: jsonschema.Draft202012Validator) -> list[str]:
    """Say where a value does not fit a schema."""
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(value)]


def _of(each: Object, version: str) -> list[str]:
    kind = each["kind"]
    if kind in KUBEFLOW:
        return _of_kubeflow(each, KUBEFLOW[kind])
    if kind in OTHERS:
        return of_schema(each, validator(OTHERS[kind]))
    try:
        kubernetes_validate.validate(each, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{'/'.join(map(str, error.absolute_path))}: {error.message}"]
    return []


@functools.cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    """Return what checks a value by one of the schemas beside this file."""
    made = json.loads((Path(__file__).parent / "schemas" / name).read_text())
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def _of_kubeflow(each: Object, model: Any) -> list[str]:
    """Read it as the Trainer's types do, and see what they left behind: they pass over what they do not know."""
    if each["apiVersion"] != "trainer.kubeflow.org/v1alpha1":
        return [f"is of {each['apiVersion']}"]
    try:
        read = model.from_dict(each).to_dict()
    except ValidationError as error:
        return [f"{'/'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
    return [f"{path}: unknown" for path in _left(each, read, "")]


def _left(given: Any, read: Any, path: str) -> Iterator[str]:
    if isinstance(given, dict):
        for name, value in given.items():
            if not isinstance(read, dict) or name not in read:
                yield f"{path}{name}"
            else:
                yield from _left(value, read[name], f"{path}{name}/")
    elif isinstance(given, list):
        for number, value in enumerate(given):
            yield from _left(value, read[number], f"{path}{number}/")
    elif given != read:
        yield path.rstrip("/")
