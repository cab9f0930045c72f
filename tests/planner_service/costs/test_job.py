"""Shows that descriptions become valid jobs, computed or measured module by module, and typical batches of them."""

from __future__ import annotations

import re
from typing import Any

import cases
import corners
import pytest
from costs_tables import TABLES
from dip.errors import DipError
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_job_spec, validate_plan_request
from hypothesis import given, settings
from hypothesis import strategies as st

from planner_service.costs.gpus import known_gpus
from planner_service.costs.job import job_spec, typical_batch
from planner_service.costs.reading import read_description
from planner_service.costs.tables import DescriptionError


def spec_of(**change: object) -> pb.JobSpec:
    return job_spec(read_description(TABLES | change))


def changed(place: int, **change: object) -> list[dict[str, Any]]:
    modules = [dict(module) for module in TABLES["modules"]]
    modules[place] |= change
    return modules


def test_the_job_of_a_description() -> None:
    spec = spec_of()
    validate_job_spec(spec)
    vision, language = spec.model.modules
    assert [m.name for m in spec.model.modules] == ["vision", "language"]
    assert (list(vision.inputs), list(language.inputs)) == ([], ["vision"])
    assert (vision.layers[0].count, language.layers[0].count) == (4, 6)
    # bf16 on two GPUs; four units of vision become one of the language model's width
    assert (vision.output_bytes_per_unit, vision.result_bytes_per_unit) == (512, 256)
    assert (language.output_bytes_per_unit, language.result_bytes_per_unit) == (1024, 0)
    weights = 4 * 512**2 + 2 * 512 * 2048
    assert vision.layers[0].static_bytes == 18 * weights // 2
    assert [s.name for s in vision.layers[0].cost.strategies] == ["recompute", "offload"]


def test_the_cluster_of_a_description() -> None:
    cluster = spec_of().cluster
    assert (cluster.ranks, cluster.replicas, cluster.link_latency_us) == (2, 1, 12)
    assert list(cluster.memory_bytes) == [int(0.92 * 80e9)]
    assert cluster.link_bytes_per_us == 450_000 * 0.8  # four GPUs share a node
    assert spec_of(cluster={"ranks": 8}).cluster.link_bytes_per_us == 50_000 * 0.85
    own = spec_of(
        cluster={"ranks": 2, "replicas": 3, "link_gb_per_s": 22, "memory_gb": [40, 60], "rank_speed": [1, 0.5]}
    ).cluster
    assert (own.replicas, own.link_bytes_per_us) == (3, 22_000)
    assert (list(own.memory_bytes), list(own.rank_speed)) == ([40_000_000_000, 60_000_000_000], [1.0, 0.5])


def test_options_of_modules_and_job() -> None:
    options = spec_of(
        split_backward=True, modules=changed(1, segments=2, sub_microbatch_units=4096), strategies=[]
    ).options
    assert options.split_backward
    assert dict(options.segments) == {"language": 2}
    assert dict(options.sub_microbatch_units) == {"language": 4096}


def test_frozen_modules_hold_weights_alone() -> None:
    trained, frozen = (spec_of(modules=changed(0, frozen=held)).model.modules[0] for held in (False, True))
    assert frozen.frozen
    assert frozen.layers[0].static_bytes * 9 == trained.layers[0].static_bytes


def test_a_sharded_optimizer_holds_less() -> None:
    whole, shared = (spec_of(memory={"optimizer_shards": n}).model.modules[1].layers[0].static_bytes for n in (1, 4))
    assert whole / 18 == pytest.approx(shared / 9)


def test_measured_modules_are_taken_as_they_were_measured() -> None:
    measured = cases.job()  # vision and language
    modules = [changed(0)[0], {"name": "language", "measured": "costs.json", "inputs": ["vision"], "frozen": True}]
    spec = job_spec(read_description(TABLES | {"modules": modules}), {"costs.json": measured})
    computed, language = spec.model.modules
    assert computed == spec_of().model.modules[0]
    assert language.layers == measured.model.modules[1].layers
    assert language.output_bytes_per_unit == measured.model.modules[1].output_bytes_per_unit
    assert (list(language.inputs), language.frozen) == (["vision"], True)


def test_a_result_may_be_described_where_layers_were_measured() -> None:
    modules = [{"name": "vision", "measured": "m", "result_width": 64, "merge": 4}, changed(1)[1]]
    spec = job_spec(read_description(TABLES | {"modules": modules}), {"m": cases.job()})
    assert spec.model.modules[0].result_bytes_per_unit == 2 * 64 / 4 / 2


@pytest.mark.parametrize(
    ("modules", "says"),
    [
        (
            [{"name": "sound", "measured": "m"}],
            "modules[0].measured is 'm', must be a job with a module 'sound': it has vision, language",
        ),
        (changed(1, inputs=["sound"]), "modules[1].inputs[0]: is 'sound', must be a module listed before this one"),
        (changed(1, inputs=[]), "modules[0]: is \"'vision', an input of no module\""),
        (changed(1, name="vision"), "modules[1].name: is 'vision', must be unlike"),
    ],
)
def test_modules_that_do_not_go_together(modules: list[dict[str, Any]], says: str) -> None:
    description = read_description(TABLES | {"modules": modules})
    with pytest.raises(DescriptionError, match=re.escape(says)):
        job_spec(description, {"m": cases.job()})


def test_the_typical_batch_of_a_description() -> None:
    description = read_description(TABLES)
    spec = job_spec(description)
    batch = typical_batch(spec, description)
    validate_plan_request(pb.PlanRequest(job=spec, batch=batch))
    assert [len(microbatch.samples) for microbatch in batch.microbatches] == [2, 2, 2]
    sample = batch.microbatches[0].samples[0]
    assert {name: list(held.units) for name, held in sample.instances.items()} == {
        "vision": [256, 256],
        "language": [600],
    }


@pytest.mark.parametrize("name", corners.FITTING)
def test_every_job_has_a_typical_batch(name: str) -> None:
    spec = corners.FITTING[name]().job
    batch = typical_batch(spec)
    validate_plan_request(pb.PlanRequest(job=spec, batch=batch))
    (microbatch,) = batch.microbatches
    assert {module.name for module in spec.model.modules} == set(microbatch.samples[0].instances)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_shape_that_is_accepted_makes_a_valid_job(data: st.DataObject) -> None:
    draw = data.draw
    gpus = draw(st.sampled_from([1, 2, 3, 4, 16]))
    module = {
        "name": "m",
        "layers": draw(st.integers(1, 10_000)),
        "heads": gpus * draw(st.integers(1, 16)),
        "head_width": draw(st.integers(1, 2**9)),
        "width": draw(st.integers(1, 2**15)),
        "mlp_width": gpus * draw(st.integers(1, 2**16)),
        "mlp_matrices": draw(st.sampled_from([2, 3])),
        "causal": draw(st.booleans()),
        "frozen": draw(st.booleans()),
    }
    tables = TABLES | {
        "gpu": draw(st.sampled_from(sorted(known_gpus()))),
        "tensor_parallel": gpus,
        "split_backward": draw(st.booleans()),
        "modules": [module],
        "cluster": {"ranks": draw(st.integers(1, 64))},
    }
    validate_job_spec(job_spec(read_description(tables)))


def test_layers_beyond_what_the_contract_holds_are_refused() -> None:
    huge = {"name": "m", "layers": 10_000, "width": 2**20, "mlp_width": 2**20, "heads": 2**20}
    tables = TABLES | {"modules": [huge], "memory": {"optimizer_bytes": 1024}}
    with pytest.raises(DescriptionError, match=r"^modules: is '\d+ static bytes', must be at most \d+ in all layers"):
        job_spec(read_description(tables))


def test_errors_are_the_descriptions_own() -> None:
    assert not issubclass(DescriptionError, DipError)
    assert issubclass(DescriptionError, ValueError)
