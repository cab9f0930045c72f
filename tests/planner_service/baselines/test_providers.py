"""Shows that baselines of other packages are found where they are installed, and named where they are not."""

from __future__ import annotations

from planner_service.baselines import BASELINES, registered_baselines


def test_orders_of_pytorch_are_registered_beside_ours() -> None:
    found = registered_baselines()
    assert set(BASELINES) < set(found.baselines)
    assert {name for name in found.baselines if name.startswith("torch-")} == {
        "torch-interleaved-1f1b",
        "torch-interleaved-zero-bubble",
        "torch-zbv-zero-bubble",
        "torch-dual-pipe-v",
    }
    assert all(name == baseline.name for name, baseline in found.baselines.items())
    assert found.missing == {}


def test_what_is_not_installed_is_named() -> None:
    found = registered_baselines([("not_installed_here", "BASELINES")])
    assert found.baselines == BASELINES
    assert found.missing == {"not_installed_here": "No module named 'not_installed_here'"}
