"""Shows that baselines are collected from import paths, and that what is none is explained."""

from __future__ import annotations

import pytest
from dip.errors import CannotFitError

from planner_service.baselines import BASELINES, Baseline
from planner_service.bench.case import Case
from planner_service.bench.peers import TORCH_ORDERS, load_peers, peer_rows


def test_pytorch_orders_are_found() -> None:
    peers = load_peers([TORCH_ORDERS])
    assert peers.absent == ()
    assert {"torch-zbv-zero-bubble", *BASELINES} <= peers.baselines.keys()


def test_what_is_not_installed_is_absent() -> None:
    peers = load_peers(["not_there.at_all:ORDERS"])
    assert peers.absent == ("not_there.at_all:ORDERS (no not_there here)",)
    assert peers.baselines == BASELINES


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("benchmarks", "'benchmarks', must be module:NAME"),
        ("dip.errors:", "'dip.errors:', must be module:NAME"),
        ("dip.errors:NOTHING", "no mapping from names to baselines"),
        ("planner_service.check.workload:MIXES", "no mapping from names to baselines"),
    ],
)
def test_what_is_no_mapping_of_baselines_is_refused(path: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        load_peers([path])


def test_each_baseline_gets_a_row_whether_it_fits_or_not() -> None:
    def none_fits(*_: object) -> list[object]:
        raise CannotFitError(rank=1, needed_bytes=9, available_bytes=5)

    case = Case(config="vlm-s", mix="text", seed=0, microbatches=2)
    misfit = Baseline(name="huge", description="", candidates=none_fits)  # type: ignore[arg-type]
    fits, huge = peer_rows(case, case.request(split=False), [BASELINES["megatron"], misfit])
    assert (fits["method"], fits["fits"], fits["fault"]) == ("megatron", True, "")
    assert (huge["method"], huge["fits"]) == ("huge", False)
    assert "rank 1" in str(huge["why"])
