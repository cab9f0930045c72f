"""Shows Optimus' order: all encoder forwards, the backbone's 1F1B, all encoder backwards."""

from __future__ import annotations

from itertools import groupby

import corners
import pytest
from dip.planner.v1 import planner_pb2 as pb

from planner_service.baselines import BASELINES

COMPUTE = (pb.ACTION_KIND_FORWARD, pb.ACTION_KIND_BACKWARD)


@pytest.mark.parametrize("name", ["seven_microbatches_on_four_ranks", "two_encoders", "frozen_encoder", "one_rank"])
def test_the_backbone_runs_between_the_encoders(name: str) -> None:
    plan = BASELINES["optimus"](corners.FITTING[name]())
    for schedule in plan.ranks:
        tasks = [action for action in schedule.actions if action.kind in COMPUTE]
        encoder = [action.module != "language" for action in tasks]
        runs = [key for key, _ in groupby(encoder)]
        assert runs in ([True, False, True], [True, False], [False, True], [False])
        before = [action.kind for action in tasks[: encoder.index(False)]]
        after = [action.kind for action in tasks[len(tasks) - encoder[::-1].index(False) :]]
        assert set(before) <= {pb.ACTION_KIND_FORWARD}
        assert set(after) <= {pb.ACTION_KIND_BACKWARD}


def test_the_backbone_is_plain_1f1b_or_interleaved() -> None:
    request = corners.fewer_microbatches_than_ranks()
    request.job.options.segments.clear()
    plan = BASELINES["optimus"](request)
    microbatch_of = {sub.id: sub.microbatch for sub in plan.sub_microbatches}
    last = [action for action in plan.ranks[-1].actions if action.kind in COMPUTE and action.module == "language"]
    if len({action.chunk for action in last}) == 1:
        kinds = [(action.kind, microbatch_of[action.sub_microbatch]) for action in last]
        assert kinds == [(kind, m) for m in sorted(set(microbatch_of.values())) for kind in COMPUTE]
    else:
        assert [action.kind for action in last][:2] == [COMPUTE[0]] * 2
