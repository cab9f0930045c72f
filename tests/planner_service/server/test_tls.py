"""Shows that gRPC is handed certificates when they are new, and nothing to parse whenever somebody connects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from certificates import Authority

from planner_service.access import Access
from planner_service.server.tls import server_credentials
from planner_service.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_configuration_is_made_once_for_each_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[str, Any] = {}

    def noted(first: Any, changed: Any, *, require_client_authentication: bool) -> None:
        taken.update(first=first, changed=changed, require=require_client_authentication)

    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", noted)
    authority = Authority(tmp_path)
    pair, second = authority.pair(), authority.pair()
    access = Access(Settings(**pair.server_settings()))
    server_credentials(access)
    assert isinstance(taken["first"], grpc.ServerCertificateConfiguration)
    assert taken["require"] is False
    assert [taken["changed"]() for _ in range(3)] == [None] * 3
    pair.overwrite(second)
    watched = access._certificates
    assert watched is not None
    assert [watched.look() for _ in range(3)] == [False, True, False]
    assert isinstance(taken["changed"](), grpc.ServerCertificateConfiguration)
    assert [taken["changed"]() for _ in range(3)] == [None] * 3


def test_without_files_there_is_no_tls() -> None:
    assert server_credentials(Access(Settings())) is None
