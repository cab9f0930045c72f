"""The compose file is valid, wired right, hardened, made of settings that the code reads, and its planner starts so."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deploy.rendering import DEPLOY, KUBERNETES
from deploy.running import SERVICE
from deploy.site import Site, is_serving
from needed import needs_openssl
from redis_cases import needs_redis
from waiting import until

from deploy import composing
from planner_service.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

FAULTS: list[tuple[Any, str]] = [
    (lambda services: services["planner"].update(command="dip serve"), "is not of type 'array'"),
    (lambda services: services["planner"].update(mem_limits="4g"), "mem_limits"),
    (lambda services: services["planner"].update(ports=["9464:9464"]), "does not match"),
    (lambda services: services["planner"].update(user="0:0"), "planner: runs as root"),
    (lambda services: services["redis"].pop("read_only"), "redis: may write"),
    (lambda services: services["redis"].pop("cap_drop"), "redis: keeps capabilities"),
    (lambda services: services["trainer"].pop("security_opt"), "trainer: may gain privileges"),
    (lambda services: services["redis"].pop("healthcheck"), "redis: is checked by nobody"),
    (lambda services: services["planner"].update(secrets=["password"]), "comes from nowhere"),
    (lambda services: services["planner"].update(secrets=[]), "nothing is at"),
    (lambda services: services["planner"].update(networks=["metrics"]), "reaches no redis"),
    (lambda services: services["planner"].update(mem_limit="2g"), "no memory for 1 workers"),
    (lambda services: services["planner"].pop("stop_grace_period"), "has 10 s to end"),
    (lambda services: services["planner"]["environment"].update(DIP_LISTEN="0.0.0.0:50061"), "anybody there may call"),
    (lambda services: services["planner"]["environment"].update(DIP_STORES="memory://"), "no settings of the planner"),
    (lambda services: services["planner"]["environment"].update(DIP_LISTEN="unix:///run/p.sock"), "no planner listens"),
    (lambda services: services["trainer"].update(user="10003:10003"), "no planner listens"),
    (lambda services: services["trainer"]["environment"].update(DIP_ENDPOINT="x"), "no variables of an agent"),
]  # fmt: skip


def test_the_file_is_as_it_should_be() -> None:
    assert composing.problems(composing.load()) == []


@pytest.mark.parametrize(("spoil", "expected"), FAULTS)
def test_what_is_wrong_is_found(spoil: Callable[[Any], Any], expected: str) -> None:
    project = composing.load()
    spoil(project["services"])
    found = composing.problems(project)
    assert any(expected in each for each in found), found


@needs_openssl
def test_its_files_are_there_once_the_secrets_are_made(tmp_path: Path) -> None:
    project = composing.load()
    made = {each["file"].removeprefix("./secrets/") for each in project["secrets"].values()}
    subprocess.run(["sh", str(DEPLOY / "make_secrets.sh"), str(tmp_path / "made")], check=True, capture_output=True)
    for name in made:
        # Compose binds them as they are: users of containers must be able to read them, others must not come there.
        assert (tmp_path / "made" / name).stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700
    for each in project["configs"].values():
        assert (composing.FILE.parent / each["file"]).resolve() == KUBERNETES / "base/redis/valkey.conf"


@needs_openssl
def test_secrets_that_are_there_are_kept(tmp_path: Path) -> None:
    command = ["sh", str(DEPLOY / "make_secrets.sh"), str(tmp_path / "made")]
    subprocess.run(command, check=True, capture_output=True)
    first = {path: path.read_bytes() for path in (tmp_path / "made").rglob("*") if path.is_file()}
    (tmp_path / "made" / "access" / "access.toml").write_text("# mine\n")
    subprocess.run(command, check=True, capture_output=True)
    second = {path: path.read_bytes() for path in (tmp_path / "made").rglob("*") if path.is_file()}
    assert {path.name for path in first if first[path] != second[path]} == {"access.toml"}
    assert (tmp_path / "made" / "access" / "access.toml").read_text() == "# mine\n"
    assert len(first) == 10


@needs_openssl
@needs_redis
def test_its_planner_starts_as_configured(tmp_path: Path) -> None:
    project = composing.load()
    planner = project["services"]["planner"]
    files = composing.granted(project, planner)
    site = Site(tmp_path, lambda path: files[path].removeprefix("./secrets/"))
    with site.redis((KUBERNETES / "base/redis/valkey.conf").read_text()) as server:
        site.use_redis(server)
        settings = site.settings(planner["environment"])
        with site.planner(settings):
            until(lambda: is_serving(settings["DIP_HEALTH_LISTEN"], SERVICE))
            socket = Path(settings["DIP_LISTEN"].removeprefix("unix://"))
            assert socket.stat().st_mode & 0o777 == 0o660


@pytest.mark.parametrize("name", ["planner"])
def test_its_health_is_asked_with_a_command_that_there_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    test = composing.load()["services"][name]["healthcheck"]["test"]
    assert test[:2] == ["CMD", "dip"]
    with pytest.raises(SystemExit) as caught:
        main([*test[2:], "--help"])
    assert caught.value.code == 0
    assert "health" in capsys.readouterr().out
