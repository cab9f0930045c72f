"""What deploy/README.md tells operators to write and run works as it says."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from deploy.rendering import DEPLOY, KUBERNETES, find, needs_kubectl, render
from deploy.workloads import TRAINER_OF_SHARED, containers
from dip.connecting import ClientFiles, Endpoint
from needed import needs_openssl

from deploy import hardening, running, wiring
from planner_service.access.entries import parse_entries

if TYPE_CHECKING:
    from pathlib import Path

GUIDE = (DEPLOY / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """Return the guide's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)


def block(language: str, word: str) -> Any:
    """Return the only block with a word in it."""
    (found,) = [text for text in blocks(language) if word in text]
    return yaml.safe_load(found) if language == "yaml" else found


@needs_kubectl
@pytest.mark.parametrize("overlay", ["beside-rank-0", "sidecar", "shared"])
def test_a_kustomization_of_ones_own_renders(overlay: str, tmp_path: Path) -> None:
    mine = block("yaml", "kind: Kustomization")
    mine["resources"] = [os.path.relpath(KUBERNETES / "overlays" / overlay, tmp_path)]
    mine["images"][0]["digest"] = f"sha256:{'0' * 64}"
    if overlay == "sidecar":  # as the guide says for its metrics
        mine["components"] = [os.path.relpath(KUBERNETES / "components/monitoring", tmp_path)]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    objects = render(tmp_path)
    assert {each["metadata"].get("namespace") for each in objects} == {"dip"}
    assert hardening.problems(objects) + running.problems(objects) + wiring.problems(objects) == []
    images = {each.raw["image"].partition(":")[0] for each in containers(objects)}
    assert images <= {"ghcr.io/your/dip-planner@sha256", "ghcr.io/your/trainer", "valkey/valkey"}
    assert find(objects, "PodMonitor", "dip-planner") if overlay != "beside-rank-0" else True


def test_every_directory_that_it_applies_is_there() -> None:
    applied = re.findall(r"apply -k (deploy/\S+)", GUIDE)
    assert len(applied) == 4
    for path in applied:
        assert (DEPLOY.parent / path / "kustomization.yaml").is_file(), path


def test_what_it_links_to_is_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", GUIDE):
        assert (DEPLOY / target).exists(), target


@needs_openssl
def test_the_secrets_that_it_makes_are_whole(tmp_path: Path) -> None:
    make, *creating = [line for line in block("sh", "create secret").splitlines() if "namespace" not in line]
    assert make.startswith("sh deploy/make_secrets.sh secrets ")
    subprocess.run(make.replace("deploy/", f"{DEPLOY}/"), shell=True, check=True, cwd=tmp_path, capture_output=True)
    for line in creating:
        for path in re.findall(r"--from-file=(\S+)", line):
            assert (tmp_path / path).is_file(), path
    (entry,) = parse_entries((tmp_path / "secrets/access/access.toml").read_bytes(), "access.toml")
    assert entry.name == "trainers"
    shown = names_in(tmp_path / "secrets/tls/tls.crt")
    certificate = block("yaml", "kind: Certificate")
    assert certificate["spec"]["secretName"] in wiring.SECRETS
    for name in certificate["spec"]["dnsNames"]:
        assert f"DNS:{name}" in shown


@needs_openssl
def test_certificates_name_hosts_and_addresses_each_as_what_they_are(tmp_path: Path) -> None:
    make = ["sh", str(DEPLOY / "make_secrets.sh"), str(tmp_path / "secrets")]
    subprocess.run([*make, "node-0", "10.1.2.3", "fd00::1"], check=True, capture_output=True)
    shown = names_in(tmp_path / "secrets/tls/tls.crt")
    assert re.findall(r"(DNS|IP Address):([^,\s]+)", shown) == [
        ("DNS", "node-0"),
        ("IP Address", "10.1.2.3"),
        ("IP Address", "FD00:0:0:0:0:0:0:1"),
    ]


@needs_openssl
def test_what_openssl_refuses_is_said_and_ends_the_making(tmp_path: Path) -> None:
    make = ["sh", str(DEPLOY / "make_secrets.sh"), str(tmp_path / "secrets")]
    refused = subprocess.run([*make, "10.1.2.300"], capture_output=True, text=True)
    assert refused.returncode == 1
    assert "10.1.2.300" in refused.stderr
    assert not (tmp_path / "secrets/tls/tls.crt").exists()


def names_in(certificate: Path) -> str:
    """Return what a certificate says of whom it is for."""
    return subprocess.run(
        ["openssl", "x509", "-in", str(certificate), "-noout", "-ext", "subjectAltName"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_the_trainer_of_a_shared_planner_has_what_its_variables_name() -> None:
    pod = block("yaml", "DIP_PLANNER_ENDPOINT")
    variables = {each["name"]: each["value"] for each in pod["env"]}
    assert variables == TRAINER_OF_SHARED  # which a planner is started for, and called with
    Endpoint.parse(variables["DIP_PLANNER_ENDPOINT"])
    files = ClientFiles.from_environment(variables)
    mounts = {each["mountPath"]: each["name"] for each in pod["volumeMounts"]}
    volumes = {each["name"]: each["secret"] for each in pod["volumes"]}
    for path in (files.ca_file, files.token_file):
        directory, _, name = path.rpartition("/")
        secret = volumes[mounts[directory]]
        keys = {item["path"] for item in secret.get("items", [])} or wiring.SECRETS[secret["secretName"]]
        assert keys == {name}
