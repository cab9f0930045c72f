"""Shows that the container files say what they must: who runs them, what is in them, and that nothing floats.

`make check-containers` runs their steps and starts what they make.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = {name: ROOT / "deploy" / "containers" / f"{name}.Containerfile" for name in ("planner", "trainer")}
INSTRUCTIONS = {
    "ARG",
    "CMD",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "FROM",
    "HEALTHCHECK",
    "LABEL",
    "RUN",
    "STOPSIGNAL",
}
INSTRUCTIONS |= {"USER", "WORKDIR"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def steps(name: str) -> list[tuple[str, str]]:
    """Instructions of a file and what each says, comments left out and lines that go on joined."""
    lines = [line for line in FILES[name].read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    split = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [(instruction, rest) for instruction, rest in (each if len(each) == 2 else (*each, "") for each in split)]


def said(name: str, instruction: str) -> list[str]:
    """All that a file says with an instruction."""
    return [rest for found, rest in steps(name) if found == instruction]


def last_stage(name: str) -> list[tuple[str, str]]:
    """What makes the image itself."""
    all_steps = steps(name)
    return all_steps[max(i for i, (instruction, _) in enumerate(all_steps) if instruction == "FROM") :]


def default(name: str, argument: str) -> str:
    """Value of a build argument that nobody gives."""
    return next(rest.partition("=")[2] for rest in said(name, "ARG") if rest.startswith(f"{argument}="))


def extras(name: str) -> set[str]:
    """Packages that an image installs for the project, as pyproject.toml names them."""
    named = [each for extra in default(name, "EXTRAS").split(",") for each in PROJECT["optional-dependencies"][extra]]
    return {re.split(r"[<>=\[; ]", each)[0] for each in named}


@pytest.mark.parametrize("name", FILES)
def test_only_known_instructions_are_used(name: str) -> None:
    assert {instruction for instruction, _ in steps(name)} <= INSTRUCTIONS
    for instruction in ("CMD", "ENTRYPOINT"):
        for rest in said(name, instruction):
            assert all(isinstance(word, str) for word in json.loads(rest)), "a shell would not hand signals on"


@pytest.mark.parametrize("name", FILES)
def test_the_base_is_pinned_and_no_registry_but_the_standard_one_is_named(name: str) -> None:
    image, _, tag = default(name, "BASE").rpartition(":")
    assert image == "docker.io/library/debian"
    assert re.fullmatch(r"[a-z]+-slim", tag)
    assert {rest.split()[0] for rest in said(name, "FROM")} == {"${BASE}"}


@pytest.mark.parametrize("name", FILES)
def test_the_image_runs_as_a_number_that_is_not_root(name: str) -> None:
    users = [rest for instruction, rest in last_stage(name) if instruction == "USER"]
    assert len(users) == 1
    assert all(number.isdigit() and int(number) > 0 for number in users[0].split(":"))
    after = [instruction for instruction, _ in last_stage(name)]
    assert "RUN" not in after[after.index("USER") :]


@pytest.mark.parametrize("name", FILES)
def test_what_is_copied_is_there_and_a_build_sees_it(name: str) -> None:
    seen = [
        line[1:].removesuffix("/**") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    ]
    for rest in said(name, "COPY"):
        *sources, _ = [word for word in shlex.split(rest) if not word.startswith("--")]
        if "--from=builder" in rest:
            assert sources == ["/opt/dip"]
            continue
        assert [source for source in sources if not (ROOT / source).exists()] == []
        assert [source for source in sources if source not in seen] == []


@pytest.mark.parametrize("name", FILES)
def test_versions_are_those_that_the_tests_run_with(name: str) -> None:
    installs = [rest for rest in said(name, "RUN") if "pip install" in rest]
    assert len(installs) == 1
    assert "--constraint /src/constraints.txt" in installs[0]
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert extras(name) <= pinned
    assert f'org.opencontainers.image.version="{PROJECT["version"]}"' in said(name, "LABEL")[0]


def test_the_planner_has_no_torch_and_the_trainer_no_solvers() -> None:
    assert not {"torch", "pytest", "mypy"} & extras("planner")
    assert not {"ortools", "numba", "redis", "pytest", "mypy"} & extras("trainer")


def test_no_index_and_no_password_is_kept_in_an_image() -> None:
    for name in FILES:
        text = FILES[name].read_text(encoding="utf-8")
        assert "https://" not in text
        assert not re.search(r"^(ENV|ARG).*(PASSWORD|TOKEN|SECRET|INDEX_URL)", text, re.MULTILINE)
        install = next(rest for rest in said(name, "RUN") if "pip install" in rest)
        assert install.startswith("--mount=type=secret,id=pip.conf,target=/etc/pip.conf")


def test_the_planner_compiles_its_kernels_as_it_is_built_from_the_installed_package() -> None:
    planner = steps("planner")
    compiled = next(i for i, (_, rest) in enumerate(planner) if "planner_service.warmup" in rest)
    assert next(rest for instruction, rest in reversed(planner[:compiled]) if instruction == "WORKDIR") == "/"
    assert planner[compiled][1].startswith("/opt/dip/bin/python -m ")


def test_the_planner_is_asked_for_its_health_and_ended_as_dip_serve_knows_it() -> None:
    assert said("planner", "ENTRYPOINT") + said("planner", "CMD") == ['["dip"]', '["serve"]']
    assert said("planner", "STOPSIGNAL") == ["SIGTERM"]
    assert said("planner", "HEALTHCHECK")[0].endswith('CMD ["dip", "health"]')
    assert "50061 50062 9464" in said("planner", "EXPOSE")


@pytest.mark.parametrize("script", ["tools/check_containers.sh", "tools/in_root.sh"])
def test_the_scripts_that_start_images_are_shell(script: str) -> None:
    subprocess.run(["sh", "-n", ROOT / script], check=True)
