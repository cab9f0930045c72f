"""Shows that a misspelt setting is found, with the one that was meant, and that other variables are left alone."""

import pytest
from dip.misspelt import NAMES, misspelt

from planner_service.settings import PREFIX, Settings
from trainer_agent.settings import VARIABLES


def test_the_names_are_those_that_planner_and_agents_read() -> None:
    read = {PREFIX + name.upper() for name in Settings.model_fields} | {each.name for each in VARIABLES}

    assert set(NAMES) == read
    assert len(NAMES) == len(read)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DIP_TLS_CERT", "DIP_TLS_CERT_FILE"),
        ("DIP_TLS_CERT_FLIE", "DIP_TLS_CERT_FILE"),
        ("DIP_TLS_CA", "DIP_TLS_CA_FILE"),
        ("DIP_ACESS_FILE", "DIP_ACCESS_FILE"),
        ("DIP_TOKEN", "DIP_TOKEN_FILE"),
        ("DIP_ENDPOINT", "DIP_PLANNER_ENDPOINT"),
        ("DIP_LISTEN_ADDRESS", "DIP_LISTEN"),
        ("DIP_WORKERS", "DIP_SEARCH_WORKERS"),
        ("DIP_DRAIN_S", "DIP_DRAIN_MS"),
        ("DIP_JOBID", "DIP_JOB_ID"),
    ],
)
def test_a_slip_is_told_with_what_was_meant(name: str, meant: str) -> None:
    assert list(misspelt([name, *NAMES])) == [f"{name}: is set, but there is no such setting; is {meant} meant?"]


def test_what_kubernetes_and_recipes_set_is_left_alone() -> None:
    of_services = [
        f"DIP_{service}_{kind}"
        for service in ("PLANNER", "REDIS", "PLANNER_METRICS")
        for kind in (
            "SERVICE_HOST",
            "SERVICE_PORT",
            "SERVICE_PORT_GRPC",
            "PORT",
            "PORT_50061_TCP",
            "PORT_50061_TCP_ADDR",
        )
    ]
    of_recipes = ["DIP_COMMAND", "DIP_SECRETS", "DIP_DEPLOY", "DIP_RUN", "DIP_PLANNER_CPUS", "DIP_PLANNER_MEMORY"]

    assert list(misspelt([*of_services, *of_recipes, "DIP", "DIP_IMAGE", "PATH", "TLS_CERT_FILE"])) == []
