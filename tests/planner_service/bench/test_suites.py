"""Shows that every suite's cases are told apart by name, and that the quick one measures what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from planner_service.bench.case import CLEARED, GIVEN, HALVED
from planner_service.bench.peers import TORCH_ORDERS, load_peers
from planner_service.bench.settings import Settings
from planner_service.bench.suites import engines, progress, sizes, steps, waves
from planner_service.bench.suites.registry import ALL, SUITES
from planner_service.check import check_plan
from planner_service.check.setups import PATCHES_PER_IMAGE
from planner_service.planning import make_plan

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.bench.case import Case, Row

TINY = Settings(
    configs=("vlm-s",), mixes=("web",), seeds=(0,), microbatches=2, budget_ms=40, cores=1, baselines=(TORCH_ORDERS,)
)


@pytest.mark.parametrize("name", SUITES)
def test_cases_are_told_apart(name: str) -> None:
    suite, settings = SUITES[name], Settings()
    names = [case.name for case in suite.cases(settings)]
    assert names
    assert len(set(names)) == len(names)
    assert suite.name == name
    assert all(case.seconds > 0 for case in suite.cases(settings))


def test_all_leaves_out_the_quick_one() -> None:
    assert set(ALL) == set(SUITES) - {"quick"}
    assert len(SUITES["quick"].cases(Settings())) == 5
    assert len(SUITES["paper"].cases(Settings())) == 5 * 2 * 3


def test_the_quick_suite_measures_every_method() -> None:
    (case,) = SUITES["quick"].cases(TINY)
    rows = SUITES["quick"].measure(case, TINY)
    assert [row["fault"] for row in rows] == [""] * len(rows)
    found = {(row["method"], row["memory"]) for row in rows}
    ours = {(method, memory) for method in ("ours", "ours-whole") for memory in (GIVEN, CLEARED, HALVED)}
    baselines = {(name, GIVEN) for name in load_peers(TINY.baselines).baselines}
    assert ours | baselines | {("paper", GIVEN), ("paper-tuned", GIVEN), ("paper-tuned", HALVED)} == found
    for row in rows:
        if row["fits"]:
            assert _number(row, "bound_us") <= _number(row, "makespan_us")
            assert _number(row, "peak_bytes") <= 80e9 or row["memory"] == CLEARED


def _number(row: Row, column: str) -> float:
    value = row[column]
    assert isinstance(value, int | float)
    return value


def test_each_step_has_its_row() -> None:
    (case,) = steps.cases(TINY)
    rows = steps.measure(case, TINY)
    assert tuple(row["method"] for row in rows) == steps.STEPS
    assert not any(row["fault"] for row in rows)


def test_the_first_plan_is_valid() -> None:
    (case,) = steps.cases(TINY)
    request = case.request(split=False)
    assert check_plan(request, steps.first_plan(request)).faults == ()


def test_sub_microbatches_hold_no_more_images_than_asked_for() -> None:
    smallest, *_, largest = sizes.cases(TINY)
    (row,) = sizes.measure(smallest, TINY)
    assert (row["images"], row["fits"], row["fault"]) == (4, True, "")
    assert _most_patches(smallest) <= 4 * PATCHES_PER_IMAGE < _most_patches(largest) <= 32 * PATCHES_PER_IMAGE


def _most_patches(case: Case) -> int:
    """Patches in the largest sub-microbatch of the vision encoder."""
    plan = make_plan(sizes.request_of(case), budget_ms=TINY.budget_ms, seed=0, cores=1)
    encoded = [part for part in plan.sub_microbatches if part.module == "vision"]
    return max(sum(instance.units for instance in part.instances) for part in encoded)


def test_the_wave_rises_and_falls_twice_and_its_average_is_like_all_of_it() -> None:
    (case,) = waves.cases(Settings(microbatches=4))
    requests = waves.iterations(case)
    images = [waves.images_of(request.batch) for request in requests]
    assert len(images) == waves.ITERATIONS
    assert all(len(request.batch.microbatches) == 4 for request in requests)
    low, high = sum(images[:3] + images[18:22]) / 7, sum(images[8:12] + images[28:32]) / 8
    assert high > 2 * low
    average = waves.average_batch(requests)
    assert len(average.microbatches) == 4
    assert waves.images_of(average) == pytest.approx(sum(images) / len(images), rel=0.35)


def test_engines_share_the_whole_gain() -> None:
    case = engines.cases(TINY)[0]
    rows = engines.measure(case, TINY)
    for cp_sat in (True, False):
        of_run = [row for row in rows if row["cp_sat"] is cp_sat]
        gain = sum(_number(row, "gain_us") for row in of_run)
        assert gain == _number(of_run[0], "start_us") - _number(of_run[0], "makespan_us")
    assert not any("CP-SAT" in str(row["engine"]) for row in rows if row["cp_sat"] is False)


def test_engines_are_named_without_what_they_were_fed() -> None:
    assert engines.family("list: hill, waves of 1 a rank") == "list"
    assert engines.family("annealing, ways decided") == "annealing, ways decided"


def test_progress_only_improves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "BUDGETS", (1.0,))
    monkeypatch.setattr(progress, "LONG", 2)
    monkeypatch.setattr(progress, "PAPER_LONG", 1)
    case = progress.cases(TINY)[0]
    rows = progress.measure(case, TINY)
    runs = {(row["method"], row["budget_ms"]) for row in rows}
    assert runs == {("ours", 40), ("ours", 80), ("paper", 40), ("random", 40)}
    for method, budget_ms in runs:
        found = [
            _number(row, "makespan_us") for row in rows if (row["method"], row["budget_ms"]) == (method, budget_ms)
        ]
        assert found == sorted(found, reverse=True)


def test_both_sizes_of_progress_are_as_they_say() -> None:
    for size, instance in progress.SIZES.items():
        request: pb.PlanRequest = instance.request(0)
        work = progress.build_work(request)
        assert 2 * work.num_cells == pytest.approx(int(size.split()[0].replace(",", "")), rel=0.1)
