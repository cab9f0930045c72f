"""The agent's settings: argument before environment before default, and errors that name the variable."""

from __future__ import annotations

import pytest
from dip.connecting import Endpoints

from trainer_agent import settings
from trainer_agent.settings import AgentSettings

FULL = {
    settings.PLANNER_ENDPOINT: "unix:///run/planner.sock,10.0.0.7:50061",
    settings.JOB_ID: "vlm",
    settings.STEP_TIMEOUT_S: "12.5",
    settings.SCHEDULE_WAIT_MS: "0",
    settings.CONNECT_WAIT_S: "0",
}


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
        job_id="vlm",
        step_timeout_s=12.5,
        schedule_wait_ms=0,
        connect_wait_s=0,
    )


def test_arguments_win_over_the_environment() -> None:
    found = AgentSettings.from_environment(
        FULL, endpoints="127.0.0.1:9", job_id="mine", step_timeout_s=1, schedule_wait_ms=2, connect_wait_s=3
    )
    assert found == AgentSettings(
        endpoints=Endpoints.parse("127.0.0.1:9"), job_id="mine", step_timeout_s=1, schedule_wait_ms=2, connect_wait_s=3
    )


def test_the_process_environment_is_read_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.JOB_ID, "from-the-process")
    assert AgentSettings.from_environment().job_id == "from-the-process"


@pytest.mark.parametrize(("run", "job_id"), [("run-7", "run-7"), ("none", None), ("", None)])
def test_a_torchrun_run_with_an_id_names_the_job(run: str, job_id: str | None) -> None:
    assert AgentSettings.from_environment({settings.TORCHRUN_RUN_ID: run}).job_id == job_id
    named = {settings.TORCHRUN_RUN_ID: run, settings.JOB_ID: "vlm"}
    assert AgentSettings.from_environment(named).job_id == "vlm"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
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


@pytest.mark.parametrize("field", [{"step_timeout_s": 0.0}, {"schedule_wait_ms": -1}, {"connect_wait_s": float("inf")}])
def test_a_setting_out_of_range_is_refused_where_it_is_made(field: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(field))):
        AgentSettings(**field)
