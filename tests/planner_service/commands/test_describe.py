"""Shows that ``dip describe`` reads descriptions, jobs and requests, accounts for them, and explains what it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cases
import corners
import pytest
from costs_tables import TABLES
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_job_spec, validate_plan_request
from google.protobuf import json_format

from planner_service.check import check_plan
from planner_service.commands.files import message_text

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLE = Path(__file__).parents[3] / "examples" / "vlm-7b.toml"


@pytest.fixture
def description(tmp_path: Path) -> Path:
    """Return the file of a small description."""
    path = tmp_path / "model.json"
    path.write_text(json.dumps(TABLES))
    return path


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "model.toml"
    path.write_text(text)
    return path


# ---------------------------------------------------------------- what it reads and writes


def test_the_example_goes_from_description_to_plan(dip: Callable[..., Any], tmp_path: Path) -> None:
    job, request, plan = (tmp_path / name for name in ("job.json", "request.json", "plan.json"))
    ran = dip("describe", EXAMPLE, "-o", job, "--request", request)
    assert (ran.code, ran.err) == (0, "")
    spec = json_format.Parse(job.read_text(), pb.JobSpec())
    validate_job_spec(spec)
    asked = json_format.Parse(request.read_text(), pb.PlanRequest())
    validate_plan_request(asked)
    assert asked.job == spec
    assert dip("plan", request, "-o", plan, "--budget-ms", 100).code == 0
    result = check_plan(asked, json_format.Parse(plan.read_text(), pb.Plan()))
    assert (result.faults, result.warnings) == ((), ())


def test_a_workload_is_described_as_it_is(dip: Callable[..., Any], tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    assert dip("workload", "vlm-s", "--microbatches", 4, "-o", request).code == 0
    ran = dip("describe", request)
    assert (ran.code, ran.err) == (0, "")
    assert "vision" in ran.out
    assert "recompute" in ran.out
    assert "73.6 GB" in ran.out


def test_toml_and_json_say_the_same(dip: Callable[..., Any], description: Path, tmp_path: Path) -> None:
    toml = written(
        tmp_path,
        """
        gpu = "H100"
        tensor_parallel = 2
        cluster.ranks = 2
        batch = {microbatches = 3, samples = 2}
        [[modules]]
        name = "vision"
        layers = 4
        width = 512
        mlp_width = 2_048
        mlp_matrices = 2
        heads = 8
        result_width = 1024
        merge = 4
        instances = 2
        instance_units = 256
        [[modules]]
        name = "language"
        inputs = ["vision"]
        layers = 6
        width = 1024
        mlp_width = 4096
        heads = 16
        groups = 4
        causal = true
        instance_units = 600
        """,
    )
    assert dip("describe", toml, "--json") == dip("describe", description, "--json")


def test_json_is_the_account_in_whole_numbers(dip: Callable[..., Any], description: Path) -> None:
    ran = dip("describe", description, "--json")
    told = json.loads(ran.out)
    assert told["microbatches"] == 3
    vision, language = told["modules"]
    assert (vision["units"], language["units"]) == (3 * 2 * 2 * 256, 3 * 2 * 600)
    assert [way["name"] for way in language["ways"]] == ["store", "recompute", "offload"]
    assert vision["share"] + language["share"] == pytest.approx(1.0)
    for rank in told["ranks"]:
        assert sum(rank["module_us"].values()) == rank["total_us"]
        assert isinstance(rank["static_bytes"], int)


def test_figures_of_the_table_are_those_of_the_account(dip: Callable[..., Any], description: Path) -> None:
    told, table = json.loads(dip("describe", description, "--json").out), dip("describe", description).out
    for module in told["modules"]:
        assert f"{module['units']:,}" in table
        assert f"{module['ways'][0]['forward_us'] / 1000:,.1f}" in table
        assert f"{module['efficient_units']:,}" in table
    for rank in told["ranks"]:
        assert f"{rank['total_us'] / 1000:,.1f}" in table
        chunks = (f"{c['module']} {c['first_layer']}-{c['last_layer']}" for c in rank["chunks"])
        assert ", ".join(chunks) in table


def test_a_job_without_a_batch_has_a_typical_one(dip: Callable[..., Any], tmp_path: Path) -> None:
    job, request = tmp_path / "job.json", tmp_path / "request.json"
    spec = cases.job()
    job.write_text(message_text(spec))
    request.write_text(message_text(pb.PlanRequest(job=spec)))
    of_job, of_request = dip("describe", job, "--json"), dip("describe", request, "--json")
    assert of_job.code == 0
    assert of_job == of_request
    assert json.loads(of_job.out)["microbatches"] == 1


def test_the_partition_of_a_request_counts(dip: Callable[..., Any], tmp_path: Path) -> None:
    request = corners.loaded_partition()
    path = tmp_path / "request.json"
    path.write_text(message_text(request))
    told = json.loads(dip("describe", path, "--json").out)
    layers = {
        (rank["rank"], chunk["module"], chunk["first_layer"]) for rank in told["ranks"] for chunk in rank["chunks"]
    }
    assert layers == {(chunk.rank, chunk.module, chunk.first_layer) for chunk in request.partition.chunks}
    loads = [rank["total_us"] for rank in told["ranks"]]
    request.partition.CopyFrom(default_partition(request.job, request.batch))
    path.write_text(message_text(request))
    assert [rank["total_us"] for rank in json.loads(dip("describe", path, "--json").out)["ranks"]] != loads


def test_standard_output_carries_a_message_alone(dip: Callable[..., Any], description: Path) -> None:
    ran = dip("describe", description, "-o", "-")
    validate_job_spec(json_format.Parse(ran.out, pb.JobSpec()))
    assert "load of each rank" in ran.err
    ran = dip("describe", description, "-o", "-", "--request", "-")
    assert (ran.code, ran.out) == (2, "")
    assert "at most one of them" in ran.err


def test_gpus_of_a_file(dip: Callable[..., Any], tmp_path: Path) -> None:
    gpus = tmp_path / "my-gpus.toml"
    gpus.write_text(
        """
        ["half of an H100"]
        bf16_tflops = 494.5
        memory_gb = 40
        memory_gb_per_s = 1675
        nvlink_gb_per_s = 225
        host_gb_per_s = 32
        network_gb_per_s = 25
        """
    )
    model = tmp_path / "model.json"
    model.write_text(json.dumps(TABLES))
    whole = json.loads(dip("describe", model, "--json").out)
    model.write_text(json.dumps(TABLES | {"gpu": "half of an H100"}))
    half = json.loads(dip("describe", model, "--gpus", gpus, "--json").out)
    assert half["ranks"][0]["memory_bytes"] * 2 == whole["ranks"][0]["memory_bytes"]
    # all but launches takes twice as long
    assert whole["ranks"][0]["total_us"] < half["ranks"][0]["total_us"] < 2 * whole["ranks"][0]["total_us"]
    assert dip("describe", model).code == 2


def test_measured_modules_beside_computed_ones(dip: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / "job.json").write_text(message_text(cases.job()))
    (tmp_path / "measured" / "request.json").write_text(message_text(corners.one_microbatch()))
    model, job = tmp_path / "model.json", tmp_path / "job.json"
    for name in ("job", "request"):
        vision = {"name": "vision", "measured": f"measured/{name}.json"}
        model.write_text(json.dumps(TABLES | {"modules": [vision, TABLES["modules"][1]]}))
        assert dip("describe", model, "-o", job).code == 0
        spec = json_format.Parse(job.read_text(), pb.JobSpec())
        assert spec.model.modules[0].layers == cases.job().model.modules[0].layers
        assert [s.name for s in spec.model.modules[1].layers[0].cost.strategies] == ["recompute", "offload"]


# ---------------------------------------------------------------- what it says of ranks


def test_a_rank_that_cannot_hold_its_layers_is_named(dip: Callable[..., Any], tmp_path: Path) -> None:
    model = tmp_path / "model.json"
    model.write_text(json.dumps(TABLES | {"cluster": {"ranks": 2, "memory_gb": [80, 0.1]}}))
    ran = dip("describe", model)
    assert ran.code == 0
    assert "rank 1 cannot hold its layers" in ran.out
    assert "rank 0 cannot" not in ran.out


def test_the_busiest_rank_is_named(dip: Callable[..., Any], tmp_path: Path) -> None:
    model = tmp_path / "model.json"
    uneven = [dict(module, layers=1) for module in TABLES["modules"]]
    model.write_text(json.dumps(TABLES | {"modules": uneven, "cluster": {"ranks": 3}}))
    told = json.loads(dip("describe", model, "--json").out)
    loads = [rank["total_us"] for rank in told["ranks"]]
    over = max(loads) / (sum(loads) / 3) - 1
    assert f"rank {loads.index(max(loads))} has {over:.1%} more to do than the mean" in dip("describe", model).out


# ---------------------------------------------------------------- what it refuses


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpu = ", "is not TOML"),
        ("gpu = 'H100'\ngpu = 'H100'", "is not TOML"),
        ("a = " + "[" * 100_000, "is not TOML"),
        ("a = 1" + "0" * 5000, "is not TOML"),
        ("a = 0x1" + "f" * 5000, "a is no known key"),
        ("", "gpu is missing, must be text"),
        ("gpu = 'H10'", "gpu is 'H10', must be one of A100, H100, H800, H20, H200, B200; did you mean H100?"),
        ("gpu = 'H100'\n[cluster]\nranks = inf", "cluster.ranks is inf, must be a whole number"),
        ("gpu = 2020-01-01", "gpu is datetime.date(2020, 1, 1), must be text"),
        ("[[modules]]\nname = 'a'\nmeasured = 'nowhere.json'\n", "gpu is missing"),
    ],
)
def test_descriptions_that_cannot_be_used(dip: Callable[..., Any], tmp_path: Path, text: str, says: str) -> None:
    ran = dip("describe", written(tmp_path, text))
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert "model.toml" in ran.err


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "must be an object"),
        ({"modules": 3}, "modules is 3, must be a list of at least one table"),
        ({"model": 3}, "model: is 3, must be an object, a Model"),
        ({"model": {}}, "job.model.modules: is empty"),
        ({"jobs": {}}, "jobs: is no field of PlanRequest; did you mean job?"),
        ({"job": {"cluster": {"ranks": 0}}}, "job.cluster.ranks: is 0"),
    ],
)
def test_json_that_is_nothing_with_costs(dip: Callable[..., Any], tmp_path: Path, value: object, says: str) -> None:
    path = tmp_path / "input.json"
    path.write_text(json.dumps(value))
    ran = dip("describe", path)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


def test_an_invalid_batch_is_named_by_its_field(dip: Callable[..., Any], tmp_path: Path) -> None:
    request = corners.one_microbatch()
    request.batch.microbatches[0].samples[0].instances["language"].units[0] = -1
    path = tmp_path / "request.json"
    path.write_text(message_text(request))
    ran = dip("describe", path)
    assert ran.code == 2
    assert 'batch.microbatches[0].samples[0].instances["language"].units[0]: is -1' in ran.err


def test_files_that_are_not_there(dip: Callable[..., Any], description: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.toml"
    for arguments in ((nowhere,), (description, "--gpus", nowhere), (description, "-o", tmp_path / "no" / "job.json")):
        ran = dip("describe", *arguments)
        assert (ran.code, ran.out) == (2, "")
        assert "cannot " in ran.err
    description.write_text(json.dumps(TABLES | {"modules": [{"name": "a", "measured": "nowhere.json"}]}))
    ran = dip("describe", description)
    assert ran.code == 2
    assert f"cannot read {tmp_path / 'nowhere.json'}" in ran.err


def test_gpus_go_with_descriptions_only(dip: Callable[..., Any], description: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    job.write_text(message_text(cases.job()))
    ran = dip("describe", job, "--gpus", description)
    assert ran.code == 2
    assert "must be left out" in ran.err
    broken = tmp_path / "gpus.toml"
    broken.write_text("[mine]\nmemory_gb = 'all'")
    ran = dip("describe", description, "--gpus", broken)
    assert ran.code == 2
    assert "mine.memory_gb is 'all', must be a number" in ran.err
