"""Shows that the profiler's costs are valid, complete, told to all ranks, and of the right shape where it is known."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from dip.costs import LayerTable
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_job_spec
from google.protobuf.json_format import Parse
from pipelines import targets
from pipelines.models import TinyChunk

from trainer_agent import layer_timing
from trainer_agent.__main__ import main, parse_units
from trainer_agent.compiling import STORE
from trainer_agent.errors import ProfileError
from trainer_agent.layer_timing import LayerTimer, LayerTimes
from trainer_agent.profiler import ProfileTarget, measure_cost, profile_layers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pipelines.processes import Workers


def test_costs_are_valid_and_cover_every_run_at_every_size() -> None:
    spec = profile_layers(targets.tiny(), repeats=2)
    validate_job_spec(spec)
    for module in spec.model.modules:
        for run in module.layers:
            assert [point.units for point in run.cost.points] == [16, 64]
            assert all(point.forward_us > 0 for point in run.cost.points)
            assert [strategy.name for strategy in run.cost.strategies] == ["recompute"]


def test_a_frozen_module_costs_no_backward_and_keeps_nothing() -> None:
    spec = profile_layers(targets.tiny(), repeats=1)
    audio, language = spec.model.modules[1], spec.model.modules[2]
    for point in audio.layers[0].cost.points:
        assert (point.backward_input_us, point.backward_weight_us, point.activation_bytes) == (0, 0, 0)
    for point in language.layers[0].cost.points:
        assert min(point.backward_input_us, point.activation_bytes) > 0


def test_a_frozen_module_after_a_trainable_one_has_an_input_gradient_and_no_weight_gradient() -> None:
    target = targets.tiny()
    spec = pb.JobSpec()
    spec.CopyFrom(target.spec)
    spec.model.modules[2].frozen = True
    found = profile_layers(replace(target, spec=spec), repeats=1).model.modules[2].layers[0].cost.points[-1]
    assert found.backward_input_us > 0
    assert found.backward_weight_us == 0


def test_recompute_keeps_the_input_alone_and_pays_another_forward() -> None:
    spec = profile_layers(targets.tiny(), repeats=3)
    cost = spec.model.modules[2].layers[0].cost
    for stored, lean in zip(cost.points, cost.strategies[0].points, strict=True):
        assert lean.activation_bytes == stored.units * 16 * 8
        assert lean.activation_bytes < stored.activation_bytes == lean.split_activation_bytes
        assert lean.backward_input_us >= stored.backward_input_us


def split_job(target: ProfileTarget) -> ProfileTarget:
    spec = pb.JobSpec()
    spec.CopyFrom(target.spec)
    spec.options.split_backward = True
    spec.model.modules[1].frozen = False
    spec.model.modules[2].frozen = True
    return replace(target, spec=spec)


@pytest.mark.parametrize("with_batch", [True, False])
def test_halves_are_measured_where_the_job_allows_them(with_batch: bool) -> None:
    """Of every layer, and of a frozen module after a trainable one the input half alone."""
    target = split_job(targets.tiny())
    found = profile_layers(target if with_batch else replace(target, make_batch=None), repeats=2)
    validate_job_spec(found)
    for module in found.model.modules:
        for run in module.layers:
            (recompute,) = run.cost.strategies
            for stored, lean in zip(run.cost.points, recompute.points, strict=True):
                assert stored.backward_input_us > 0
                assert (stored.backward_weight_us > 0) == (lean.backward_weight_us > 0) == (not module.frozen)
                assert lean.backward_input_us >= stored.backward_input_us
                assert stored.split_activation_bytes >= stored.activation_bytes > lean.activation_bytes
                assert lean.split_activation_bytes >= stored.activation_bytes


def test_a_module_of_one_layer_enters_it_and_leaves_it() -> None:
    """Its input half ends where ``enter`` does, whose gradients are the weight half's."""
    target = split_job(targets.tiny())
    for module in target.spec.model.modules:
        module.layers[0].count, module.frozen = 1, False
    model = replace(targets.MODEL, modules=tuple(replace(m, layers=1) for m in targets.MODEL.modules))
    found = profile_layers(replace(target, build_chunk=partial(TinyChunk, model)), repeats=1)
    for module in found.model.modules:
        (point, _) = module.layers[0].cost.points
        assert min(point.backward_input_us, point.backward_weight_us) > 0


@pytest.mark.parametrize("split", [False, True])
def test_offload_is_measured_where_it_is_asked_for(split: bool) -> None:
    target = targets.tiny()
    spec = profile_layers(split_job(target) if split else target, repeats=1, strategies=("recompute", "offload"))
    validate_job_spec(spec)
    cost = spec.model.modules[0].layers[0].cost
    assert [strategy.name for strategy in cost.strategies] == ["recompute", "offload"]
    for stored, lean in zip(cost.points, cost.strategies[1].points, strict=True):
        assert lean.activation_bytes < stored.activation_bytes <= lean.split_activation_bytes
        assert lean.backward_input_us >= stored.backward_input_us


@pytest.mark.parametrize("way", ["recompute", "offload"])
def test_no_time_is_below_that_of_the_stored_way_however_far_measuring_is_off(way: str) -> None:
    """A machine that stood still while the stored way was timed, and not while the other was."""

    def measure(units: Sequence[int], ways: Sequence[str]) -> dict[str, LayerTimes]:
        squares = float(sum(n * n for n in units))
        times = {
            STORE: LayerTimes(forward_us=100 * squares, backward_input_us=200 * squares, backward_weight_us=1.0),
            way: LayerTimes(forward_us=1.0, backward_input_us=1.0, backward_weight_us=1.0),
        }
        return {one: times[one] for one in ways}

    timer = cast("LayerTimer", SimpleNamespace(measure=lambda units, ways=(STORE,): measure(units, ways)))
    cost = measure_cost(timer, [4, 16], [way])
    assert cost.attention.forward_us > 0
    for stored, lean in zip(cost.points, cost.strategies[0].points, strict=True):
        assert 0 < stored.forward_us <= lean.forward_us
        assert 0 < stored.backward_input_us <= lean.backward_input_us


@pytest.mark.parametrize("strategies", [("store",), ("recompute", "recompute"), ("mine",)])
def test_only_ways_that_keep_less_are_measured_each_once(strategies: tuple[str, ...]) -> None:
    with pytest.raises(ProfileError, match=r"must be some of \['recompute', 'offload'\], each once"):
        profile_layers(targets.tiny(), strategies=strategies)


def test_sizes_follow_from_hand_offs_and_parameters_and_are_kept_where_given() -> None:
    target = targets.tiny()
    spec = profile_layers(target, repeats=1)
    vision, audio, language = spec.model.modules
    assert vision.output_bytes_per_unit == 8 * 8
    assert vision.result_bytes_per_unit == 3 * 8 // 2
    weights = sum(p.numel() * 8 for p in target.build_chunk(targets.INSIDE_AUDIO).layers.parameters())
    assert audio.layers[0].static_bytes == weights
    assert language.layers[0].static_bytes > 4 * weights
    target.spec.model.modules[0].output_bytes_per_unit = 5
    assert profile_layers(target, repeats=1).model.modules[0].output_bytes_per_unit == 5


def test_attention_is_told_from_what_grows_with_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,024 units take 5.2 ms as one instance and 2 ms as four: the costs say so, without having seen four."""
    played = SimpleNamespace(perf_counter_ns=lambda: round(1e9 * targets.PLAYED.now_s))
    monkeypatch.setattr(layer_timing, "time", played)
    cost = profile_layers(targets.timed(), repeats=5).model.modules[0].layers[0].cost
    table = LayerTable(cost)
    one = table.at("store", 1024, 1024**2).forward_us
    four = table.at("store", 1024, 4 * 256**2).forward_us
    assert one >= 5200
    assert four < 0.75 * one
    assert all(point.forward_us > 0 for point in cost.points)


def test_a_run_at_the_edge_is_measured_with_what_stands_around_it() -> None:
    """The first layer of its own kind has enter, the last has the loss; both reach the factory's batch."""
    target = targets.tiny()
    spec = pb.JobSpec()
    spec.CopyFrom(target.spec)
    del spec.model.modules[2].layers[:]
    for _ in range(4):
        spec.model.modules[2].layers.add(count=1)
    found = profile_layers(replace(target, spec=spec), repeats=1).model.modules[2].layers
    assert [len(run.cost.points) for run in found] == [2, 2, 2, 2]


@pytest.mark.parametrize("units", [(), (16, 16), (64, 16), (0, 16)])
def test_units_that_are_not_ascending_are_refused(units: tuple[int, ...]) -> None:
    with pytest.raises(ProfileError, match="must be ascending and above 0"):
        profile_layers(replace(targets.tiny(), units=units))


def test_a_layer_that_does_not_run_alone_is_named() -> None:
    target = targets.tiny()
    broken = {name: targets.MODEL.hand_offs()["vision"] for name in target.hand_offs}
    with pytest.raises(ProfileError, match="layer 1 of language does not run on sizes"):
        profile_layers(replace(target, hand_offs=broken), repeats=1)


def test_the_command_writes_a_job_that_parses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spec.json"
    arguments = ["profile", "--build", "pipelines.targets:tiny", "--units", "8,16", "--repeats", "1", "-o", str(path)]
    assert main(arguments) == 0
    text = path.read_text()
    validate_job_spec(Parse(text, pb.JobSpec()))
    assert "forward_us" in json.dumps(json.loads(text))
    assert "language, layers 0..3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--build", "nowhere"], "must be package.module:factory"),
        (["--build", "no.such.module:f"], "cannot import"),
        (["--build", "pipelines.targets:missing"], "has no function"),
        (["--build", "pipelines.targets:NOT_CALLABLE"], "has no function"),
        (["--build", "pipelines.targets:returns_a_number"], "returned a int"),
        (["--build", "pipelines.targets:tiny", "--units", "8,x"], "whole numbers"),
        (["--build", "pipelines.targets:tiny", "--repeats", "0"], "repeats: 0"),
        (["--build", "pipelines.targets:tiny", "--units", "8", "-o", "/nowhere/spec.json"], "cannot write"),
    ],
)
def test_bad_input_is_answered_with_what_is_wrong(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_units_by_module_and_for_all() -> None:
    assert parse_units(["64,256"]) == (64, 256)
    assert parse_units(["vision=64", "language=8,16"]) == {"vision": (64,), "language": (8, 16)}
    with pytest.raises(ProfileError, match="in all of them or in none"):
        parse_units(["64", "vision=8"])


def test_a_layer_that_returns_no_tensor_is_named() -> None:
    with pytest.raises(ProfileError, match=r"layer 1 of text returned a tuple; only layers .* a Tensor"):
        profile_layers(replace(targets.timed(), build_chunk=targets.PairChunk), repeats=1)


def test_whatever_breaks_the_measuring_is_heard_of_on_all_ranks(workers: Workers) -> None:
    said = workers.run(targets.profile_what_cannot_be_built, 2)
    assert said == ["profile of the layers failed on rank 0: KeyError: 'no weights'"] * 2


def test_all_ranks_get_the_costs_that_the_first_measured(workers: Workers) -> None:
    first, second = workers.run(targets.profile_here, 2)
    assert first == second
    validate_job_spec(pb.JobSpec.FromString(first))
