"""Shows what the executor refuses before training, what it reports, and that processes that differ raise."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import torch
from dip.job import Job
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_report_execution
from pipelines.cases import make_case, random_batch
from pipelines.models import TinyModel, TinyModule
from pipelines.scripted import (
    Raised,
    construct_with_a_broken_rank,
    construct_with_other_costs,
    parameter_names,
    refused,
    step_in_inference_mode,
    step_with_a_broken_module,
)
from pipelines.training import WAITED_US, train_all

from trainer_agent.errors import TrainerAgentError
from trainer_agent.reduction import LossWeight
from trainer_agent.setup import check_setup
from trainer_agent.stages import HandOff, ModuleHandOffs

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipelines.processes import Workers

    from trainer_agent.mesh import Mesh

MODEL = TinyModel(
    modules=(TinyModule(name="vision", layers=3), TinyModule(name="language", inputs=("vision",), layers=4))
)
COMPUTE = (
    pb.ACTION_KIND_FORWARD,
    pb.ACTION_KIND_BACKWARD,
    pb.ACTION_KIND_BACKWARD_INPUT,
    pb.ACTION_KIND_BACKWARD_WEIGHT,
)


@pytest.mark.parametrize("split", [None, 0.6])
def test_reports_are_valid_and_say_what_ran_and_how_long(workers: Workers, split: float | None) -> None:
    draw = random.Random(3)
    case = make_case(draw, "report", MODEL, 2, [[random_batch(draw, MODEL, 3)] for _ in range(3)], split=split)
    traces = [trace for (trace,) in workers.run(train_all, 2, [case])]
    for rank, trace in enumerate(traces):
        for iteration, report in enumerate(trace.reports):
            plan = case.steps[iteration][0].plan
            assert plan is not None
            report.job_id = "job"
            validate_report_execution(report, case.spec)
            assert (report.rank, report.replica, report.iteration) == (rank, 0, iteration)
            assert (report.plan_digest, report.fallback, report.stalled_us) == (plan.digest, False, WAITED_US)
            planned = [action for action in plan.ranks[rank].actions if action.kind in COMPUTE]
            assert len(report.actions) == len(planned) > 0
            end_us = 0
            for found, wanted in zip(report.actions, planned, strict=True):
                assert end_us <= found.start_us <= found.end_us
                end_us = found.end_us
                found.start_us, found.end_us = wanted.start_us, wanted.end_us
                assert found == wanted
            assert end_us <= trace.measured_us[iteration]


def test_all_ranks_tell_the_same_loss_time_and_bubble(workers: Workers) -> None:
    draw = random.Random(4)
    case = make_case(draw, "figures", MODEL, 3, [[random_batch(draw, MODEL, 3)] for _ in range(2)])
    traces = [trace for (trace,) in workers.run(train_all, 3, [case])]
    for trace in traces:
        assert trace.losses == traces[0].losses
        assert trace.measured_us == traces[0].measured_us
        assert trace.bubble_shares == traces[0].bubble_shares
    for step, (measured_us, share) in enumerate(zip(traces[0].measured_us, traces[0].bubble_shares, strict=True)):
        busy = sum(a.end_us - a.start_us for trace in traces for a in trace.reports[step].actions)
        assert share == pytest.approx(1 - busy / (3 * measured_us))
        assert 0 < share < 1


def test_names_of_parameters_do_not_depend_on_the_partition(workers: Workers) -> None:
    found = []
    for seed in (1, 2):
        draw = random.Random(seed)
        case = make_case(draw, "names", MODEL, 2, [[random_batch(draw, MODEL, 1)]])
        found.append(sorted(name for names in workers.run(parameter_names, 2, case) for name in names))
    assert found[0] == found[1]
    assert "language.layers.3.up.weight" in found[0]
    assert "vision.embed.bias" in found[0]


def test_processes_with_other_costs_are_told_before_training(workers: Workers) -> None:
    draw = random.Random(5)
    case = make_case(draw, "costs", MODEL, 2, [[random_batch(draw, MODEL, 1)]])
    for kind, message in workers.run(construct_with_other_costs, 2, case):
        assert kind == "RankMismatchError"
        assert (
            "the job as set up (spec, partition, attempt, hand-offs, tied parameters) of rank 1 differs from rank 0's"
            in message
        )


def test_a_rank_that_cannot_build_its_chunks_is_named_on_all_others(workers: Workers) -> None:
    draw = random.Random(8)
    case = make_case(draw, "build", MODEL, 2, [[random_batch(draw, MODEL, 1)]])
    (other, heard), (own, raised) = workers.run(construct_with_a_broken_rank, 2, case)
    assert (own, raised.startswith("no weights of ")) == ("FileNotFoundError", True)
    assert other == "TrainerAgentError"
    assert heard == f"building the chunks failed on rank 1 of replica 0: FileNotFoundError: {raised}"


def test_a_replica_that_evaluates_while_another_trains_is_an_error(workers: Workers) -> None:
    draw = random.Random(6)
    model = TinyModel(modules=(TinyModule(name="language", layers=2),))
    case = make_case(draw, "mixed", model, 1, [[random_batch(draw, model, 2), random_batch(draw, model, 2)]])
    step = case.steps[0][1]
    case.steps[0][1] = replace(step, batch=replace(step.batch, forward_only=True), plan=None)
    for raised in workers.run(refused, 2, case):
        assert isinstance(raised, Raised)
        assert raised.kind == "RankMismatchError"
        assert "or whether it trains" in raised.message


def test_inference_mode_is_refused_on_every_rank(workers: Workers) -> None:
    draw = random.Random(7)
    case = make_case(draw, "inference", MODEL, 2, [[random_batch(draw, MODEL, 1)]])
    for message in workers.run(step_in_inference_mode, 2, case):
        assert "step() under torch.inference_mode()" in message
        assert "forward_only" in message


def test_what_a_module_raises_has_a_note_of_rank_and_action(workers: Workers) -> None:
    draw = random.Random(8)
    case = make_case(draw, "broken", MODEL, 1, [[random_batch(draw, MODEL, 1)]])
    ((message, notes),) = workers.run(step_with_a_broken_module, 1, case)
    assert message == "no pixels"
    (note,) = notes
    assert note.startswith("raised on rank 0, in the forward of language.")


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -1.0, None, "many", torch.ones(2)])
def test_a_weight_that_is_no_weight_is_refused(weight: float) -> None:
    with pytest.raises(TrainerAgentError, match="must be a finite number of 0 or more"):
        LossWeight.gather(cast("Mesh", None), weight=weight, iteration=0, training=True)


def own_way(spec: pb.JobSpec) -> None:
    spec.model.modules[1].layers[0].cost.strategies[0].name = "mine"


def other_ranks(spec: pb.JobSpec) -> None:
    spec.cluster.ranks = 3


def other_replicas(spec: pb.JobSpec) -> None:
    spec.cluster.replicas = 2


def renamed(spec: pb.JobSpec) -> None:
    spec.model.modules[1].name = "text"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (own_way, r"its layers offer strategies \['mine'\]; this executor runs \['store', 'recompute', 'offload'\]"),
        (other_ranks, "1 replicas of 3 ranks; the mesh has 1 of 2"),
        (other_replicas, "2 replicas of 2 ranks; the mesh has 1 of 2"),
        (renamed, r"hand_offs: \['language', 'text'\]; must name the modules of the job"),
    ],
)
def test_jobs_that_this_executor_cannot_run_are_refused(change: Callable[[pb.JobSpec], None], said: str) -> None:
    spec, mesh = MODEL.spec(2), cast("Mesh", SimpleNamespace(ranks=2, replicas=1))
    check_setup(spec, Job.from_spec(spec), mesh, MODEL.hand_offs())
    change(spec)
    with pytest.raises(TrainerAgentError, match=said):
        check_setup(spec, Job.from_spec(spec), mesh, MODEL.hand_offs())


def test_ways_of_the_users_own_are_known_where_they_are_given_and_never_hide_ours() -> None:
    spec, mesh = MODEL.spec(2), cast("Mesh", SimpleNamespace(ranks=2, replicas=1))
    own_way(spec)
    check_setup(spec, Job.from_spec(spec), mesh, MODEL.hand_offs(), ["mine"])
    with pytest.raises(TrainerAgentError, match=r"strategies: \['recompute'\]; must be names of your own"):
        check_setup(spec, Job.from_spec(spec), mesh, MODEL.hand_offs(), ["mine", "recompute"])


def test_results_without_gradients_may_leave_frozen_modules_only() -> None:
    spec, mesh = MODEL.spec(2), cast("Mesh", SimpleNamespace(ranks=2, replicas=1))
    whole = {"vision": ModuleHandOffs(output=HandOff(features=(), dtype=torch.int64))}
    with pytest.raises(TrainerAgentError, match=r"hand_offs\['vision'\]: torch.int64; must be floating"):
        check_setup(spec, Job.from_spec(spec), mesh, MODEL.hand_offs() | whole)
    spec.model.modules[0].frozen = True
    check_setup(spec, Job.from_spec(spec), mesh, MODEL.hand_offs() | whole)
