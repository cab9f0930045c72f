"""The agent's settings: argument before environment before default, and errors that name the variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from dip.connecting import ClientFiles, Endpoints
from dip.connecting import variables as connecting

from trainer_agent import settings
from trainer_agent.settings import AgentSettings

FULL = {
    settings.PLANNER_ENDPOINT: "unix:///run/planner.sock,10.0.0.7:50061",
    connecting.CA_FILE: "/run/tls/ca.crt",
    connecting.CERT_FILE: "/run/tls/tls.crt",
    connecting.KEY_FILE: "/run/tls/tls.key",
    connecting.TOKEN_FILE: "/run/token",
    connecting.ALLOW_INSECURE: "true",
    settings.JOB_ID: "vlm",
    settings.STEP_TIMEOUT_S: "12.5",
    settings.SCHEDULE_WAIT_MS: "0",
    settings.CONNECT_WAIT_S: "0",
}
FILES = ClientFiles(
    ca_file="/run/tls/ca.crt",
    cert_file="/run/tls/tls.crt",
    key_file="/run/tls/tls.key",
    token_file="/run/token",
    allow_insecure=True,
)


def test_an_empty_environment_gives_the_defaults() -> None:
    assert AgentSettings.from_environment({}) == AgentSettings()
    assert AgentSettings().endpoints is None
    assert AgentSettings().step_timeout_s == 300
    assert AgentSettings().schedule_wait_ms == 200


def test_empty_variables_are_unset_ones() -> None:
    assert AgentSettings.from_environment(dict.fromkeys(FULL, "")) == AgentSettings()


def test_the_environment_wins_over_defaults() -> None:
    assert AgentSettings.from_environment(FULL) == AgentSettings(
        endpoints=Endpoints.parse("unix:///run/planner.sock,10.0.0.7:50061"),
        files=FILES,
        job_id="vlm",
        step_timeout_s=12.5,
        schedule_wait_ms=0,
        connect_wait_s=0,
    )


def test_arguments_win_over_the_environment() -> None:
    found = AgentSettings.from_environment(
        FULL,
        endpoints="127.0.0.1:9",
        files=ClientFiles(token_file="mine"),
        job_id="mine",
        step_timeout_s=1,
        schedule_wait_ms=2,
        connect_wait_s=3,
    )
    assert found == AgentSettings(
        endpoints=Endpoints.parse("127.0.0.1:9"),
        files=ClientFiles(token_file="mine"),
        job_id="mine",
        step_timeout_s=1,
        schedule_wait_ms=2,
        connect_wait_s=3,
    )


class Recorder(Mapping[str, str]):
    """An empty environment that notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getitem__(self, key: str) -> str:
        self.asked.append(key)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def test_the_variables_that_are_described_are_those_that_are_read() -> None:
    environ = Recorder()
    AgentSettings.from_environment(environ)
    described = [variable.name for variable in settings.VARIABLES]
    assert len(set(described)) == len(described)
    assert set(environ.asked) == {*described, settings.TORCHRUN_RUN_ID}
    assert all(variable.meaning.endswith(".") and variable.default for variable in settings.VARIABLES)


def test_the_defaults_that_are_described_are_those_that_hold() -> None:
    described = {variable.name: variable.default for variable in settings.VARIABLES}
    numbers = (settings.STEP_TIMEOUT_S, settings.SCHEDULE_WAIT_MS, settings.CONNECT_WAIT_S, connecting.ALLOW_INSECURE)
    assert AgentSettings.from_environment({name: described[name] for name in numbers}) == AgentSettings()


def test_the_process_environment_is_read_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.JOB_ID, "from-the-process")
    assert AgentSettings.from_environment().job_id == "from-the-process"


@pytest.mark.parametrize(("run", "job_id"), [("run-7", "run-7"), ("none", None), ("", None)])
def test_a_torchrun_run_with_an_id_names_the_job(run: str, job_id: str | None) -> None:
    assert AgentSettings.from_environment({settings.TORCHRUN_RUN_ID: run}).job_id == job_id
    named = {settings.TORCHRUN_RUN_ID: run, settings.JOB_ID: "vlm"}
    assert AgentSettings.from_environment(named).job_id == "vlm"


@pytest.mark.parametrize("name", [settings.JOB_ID, settings.TORCHRUN_RUN_ID])
@pytest.mark.parametrize("value", ["vlm/7", "a*", "vlm\n7", "träning", "..", "-x", "x" * 257])
def test_a_name_that_no_job_may_have_is_refused_at_the_start(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: ") as caught:
        AgentSettings.from_environment({name: value})
    said = str(caught.value)
    assert "a-z A-Z 0-9" in said
    assert said.isprintable()
    assert len(said) < 600
    assert settings.JOB_ID in said


def test_a_token_does_not_leave_the_machine_in_the_clear() -> None:
    environ = {settings.PLANNER_ENDPOINT: "unix:///run/p.sock,planner:1", connecting.TOKEN_FILE: "/run/token"}
    with pytest.raises(ValueError, match=rf"^{connecting.TOKEN_FILE} .* planner planner:1 .*{connecting.CA_FILE}"):
        AgentSettings.from_environment(environ)
    AgentSettings.from_environment(environ | {connecting.ALLOW_INSECURE: "true"})
    AgentSettings.from_environment(environ | {connecting.CA_FILE: "system"})
    AgentSettings.from_environment(environ | {settings.PLANNER_ENDPOINT: "unix:///run/p.sock,127.0.0.1:1"})


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        (connecting.ALLOW_INSECURE, "maybe", "true or false"),
        (settings.PLANNER_ENDPOINT, "http://planner", "host:port"),
        (settings.PLANNER_ENDPOINT, "planner:1,planner", "host:port"),
        (settings.PLANNER_ENDPOINT, "planner:1,planner:1", "each planner once"),
        (settings.STEP_TIMEOUT_S, "0", "above 0"),
        (settings.STEP_TIMEOUT_S, "inf", "above 0"),
        (settings.STEP_TIMEOUT_S, "nan", "above 0"),
        (settings.STEP_TIMEOUT_S, "5m", "seconds"),
        (settings.SCHEDULE_WAIT_MS, "-1", "0 or more"),
        (settings.SCHEDULE_WAIT_MS, "0.5", "whole number of milliseconds"),
        (settings.CONNECT_WAIT_S, "-1", "0 or more"),
    ],
)
def test_errors_name_the_variable_what_it_held_and_what_is_allowed(name: str, value: str, allowed: str) -> None:
    with pytest.raises(ValueError, match=name) as caught:
        AgentSettings.from_environment({name: value})
    assert repr(value) in str(caught.value)
    assert allowed in str(caught.value)


@pytest.mark.parametrize(
    "field", [{"step_timeout_s": 0.0}, {"schedule_wait_ms": -1}, {"connect_wait_s": float("inf")}, {"job_id": "a b"}]
)
def test_a_setting_out_of_range_is_refused_where_it_is_made(field: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(field))):
        AgentSettings(**field)
