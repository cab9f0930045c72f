"""Shows that ``dip serve`` hands its arguments on as settings, and explains those that cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from planner_service.settings import Settings


def test_arguments_come_before_the_environment(dip: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Settings] = []
    monkeypatch.setattr("planner_service.server.main.serve", lambda settings: started.append(settings) or 0)
    monkeypatch.setenv("DIP_LISTEN", "127.0.0.1:1")
    monkeypatch.setenv("DIP_LOG_LEVEL", "WARNING")
    assert dip("serve", "--listen", "127.0.0.1:0", "--search-workers", "3").code == 0
    assert started[0].listen == "127.0.0.1:0"
    assert started[0].search_workers == 3
    assert started[0].log_level == "WARNING"


def test_the_exit_code_is_the_servers(dip: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner_service.server.main.serve", lambda _settings: 1)
    assert dip("serve").code == 1


def test_what_cannot_be_used_is_explained(dip: Callable[..., Any]) -> None:
    ran = dip("serve", "--listen", "nowhere", "--search-workers", "many")
    assert ran.code == 2
    assert "DIP_LISTEN: holds 'nowhere'" in ran.err
    assert "DIP_SEARCH_WORKERS: holds 'many'" in ran.err
