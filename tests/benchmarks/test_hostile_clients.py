"""Shows that the measurement of hostile clients tells what attacks met with, and what they cost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks.hostile_clients import __main__ as hostile_clients
from planner_service import settings as names

if TYPE_CHECKING:
    import pytest


def test_two_small_attacks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # Others are served on a busy machine, too.
    monkeypatch.setitem(hostile_clients._SETTINGS, names.SOLVE_GRACE_MS, "240000")
    assert hostile_clients.main(["--count", "20", "--attacks", "streams", "unknown_tokens"]) == 0
    attacks = json.loads(capsys.readouterr().out)["attacks"]
    assert {name: attack["met"] for name, attack in attacks.items()} == {
        "streams": {"OPEN": 20},
        "unknown_tokens": {"UNAUTHENTICATED": 20},
    }
    for attack in attacks.values():
        assert set(attack["seconds"]) == {"before", "attack", "during", "after"}
        assert min(attack["resident_mib"].values()) > 0
        assert (attack["harmed"], attack["errors"]) == ("", [])
