"""What Kubernetes and compose expect of the images is what the container files make."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from deploy.rendering import DEPLOY, OVERLAYS, needs_kubectl, overlay
from deploy.workloads import planners, trainers

from deploy import composing
from planner_service.settings import Settings

FILES = {"dip-planner": "planner.Containerfile", "dip-trainer": "trainer.Containerfile"}


def instructions(image: str) -> dict[str, str]:
    """Return the last stage's instructions, the last of each kind."""
    text = (DEPLOY / "containers" / FILES[image]).read_text().replace("\\\n", " ")
    last_stage = text[text.rindex("\nFROM ") + 1 :]
    return dict(re.findall(r"^([A-Z]+) +(.*)$", last_stage, flags=re.MULTILINE))


@needs_kubectl
@pytest.mark.parametrize("name", OVERLAYS)
def test_pods_run_as_the_images_users(name: str) -> None:
    for image, found in (("dip-planner", planners(overlay(name))), ("dip-trainer", trainers(overlay(name)))):
        for container in found:
            security = container.pod.spec["securityContext"]
            assert instructions(image)["USER"] == f"{security['runAsUser']}:{security['runAsGroup']}"
            assert f"/{image}:" in container.raw["image"]


def test_services_of_compose_are_built_from_the_container_files() -> None:
    for service in composing.load()["services"].values():
        if "build" not in service:
            continue
        image = service["image"].partition(":")[0]
        assert (composing.FILE.parent / service["build"]["context"]).resolve() == DEPLOY.parent
        assert service["build"]["dockerfile"] == f"deploy/containers/{FILES[image]}"
        assert service["user"] == instructions(image)["USER"]


def test_every_way_to_start_ends_in_the_same_command() -> None:
    planner = instructions("dip-planner")
    entry: list[Any] = json.loads(planner["ENTRYPOINT"])
    assert [*entry, *json.loads(planner["CMD"])] == ["dip", "serve"]
    # In a pod `command` replaces the entrypoint, in compose it only follows it.
    assert "command" not in composing.load()["services"]["planner"]
    trainer = instructions("dip-trainer")
    assert "ENTRYPOINT" not in trainer
    assert composing.load()["services"]["trainer"]["command"][0] == json.loads(trainer["CMD"])[0] == "torchrun"


def test_the_planners_image_names_the_ports_that_it_listens_on() -> None:
    defaults = Settings.model_fields
    ports = {defaults[name].default.rpartition(":")[2] for name in ("listen", "health_listen", "metrics_listen")}
    assert set(instructions("dip-planner")["EXPOSE"].split()) == ports
