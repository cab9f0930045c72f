"""Shows that settings need no configuration, take arguments before the environment, and explain what they refuse."""

from __future__ import annotations

import pytest

from planner_service import settings
from planner_service.settings import Settings, SettingsError, load_settings


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"DIP_{name.upper()}", raising=False)


def test_defaults_serve_on_loopback_from_memory() -> None:
    loaded = load_settings()
    assert (loaded.listen, loaded.health_listen, loaded.store) == ("127.0.0.1:50061", "127.0.0.1:50062", "memory://")


def test_every_setting_has_its_name_as_a_constant() -> None:
    for name in Settings.model_fields:
        assert getattr(settings, name.upper()) == f"DIP_{name.upper()}"


def test_argument_comes_before_environment_before_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.LISTEN, "127.0.0.1:1234")
    monkeypatch.setenv(settings.SEARCH_WORKERS, "3")
    loaded = load_settings(listen="127.0.0.1:4321", search_workers=None)
    assert (loaded.listen, loaded.search_workers) == ("127.0.0.1:4321", 3)


@pytest.mark.parametrize(
    ("name", "held", "allowed"),
    [
        (settings.ALLOW_INSECURE, "maybe", "true and false"),
        (settings.SEARCH_WORKERS, "two", "a whole number"),
        (settings.SOCKET_MODE, "888", "three octal digits"),
        (settings.LOG_LEVEL, "loud", "'DEBUG', 'INFO', 'WARNING' or 'ERROR'"),
    ],
)
def test_what_is_refused_is_told_with_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, name: str, held: str, allowed: str
) -> None:
    monkeypatch.setenv(name, held)
    with pytest.raises(SettingsError, match=rf"^{name}: holds '{held}'; .*{allowed}"):
        load_settings()


def test_empty_variable_means_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.SEARCH_WORKERS, "")
    assert load_settings().search_workers == 0


@pytest.mark.parametrize(
    "address", ["127.0.0.1:0", "localhost:50061", "[::1]:50061", "0.0.0.0:65535", "unix:///tmp/planner.sock"]
)
def test_addresses_that_are_allowed(address: str) -> None:
    assert load_settings(listen=address).listen == address


@pytest.mark.parametrize(
    "address", ["50061", "localhost", "127.0.0.1:65536", "::1:50061", "unix://", "http://a:1", "a:b"]
)
def test_addresses_that_are_not(address: str) -> None:
    with pytest.raises(SettingsError, match=rf"^DIP_LISTEN: holds '{address}'; allowed are host:port"):
        load_settings(listen=address)


@pytest.mark.parametrize("name", ["listen", "health_listen"])
def test_sockets_whose_path_is_too_long(name: str) -> None:
    address = f"unix:///{'x' * 200}"
    with pytest.raises(SettingsError, match=rf"^DIP_{name.upper()}: holds '{address}'; a socket's path may have at "):
        load_settings(**{name: address})


@pytest.mark.parametrize("name", ["listen", "health_listen", "metrics_listen"])
def test_hosts_that_cannot_be(name: str) -> None:
    with pytest.raises(SettingsError, match=rf"^DIP_{name.upper()}: holds 'a\.\.b:1'; 'a\.\.b' is no name of a host"):
        load_settings(**{name: "a..b:1"})


@pytest.mark.parametrize("address", ["127.0.0.1:9464", "[::]:0", "off"])
def test_where_metrics_may_be(address: str) -> None:
    assert load_settings(metrics_listen=address).metrics_listen == address


@pytest.mark.parametrize("address", ["9464", "unix:///tmp/metrics.sock", "127.0.0.1:65536", "Off"])
def test_where_metrics_may_not_be(address: str) -> None:
    with pytest.raises(SettingsError, match=rf"^DIP_METRICS_LISTEN: holds '{address}'; allowed are host:port .* off$"):
        load_settings(metrics_listen=address)


def test_every_bad_setting_gets_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.SEARCH_WORKERS, "many")
    monkeypatch.setenv(settings.STORE, "rediss://:secret@somewhere/zero")
    monkeypatch.setenv(settings.KEPT_ITERATIONS, "0")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    lines = str(caught.value).splitlines()
    assert sorted(line.split(":")[0] for line in lines) == ["DIP_KEPT_ITERATIONS", "DIP_SEARCH_WORKERS", "DIP_STORE"]
    (store,) = [line for line in lines if line.startswith("DIP_STORE")]
    assert store.startswith("DIP_STORE: holds 'rediss://***'; allowed are memory:// and redis://host:port/")


@pytest.mark.parametrize(
    "store",
    [
        "redis://:my s3cret@host",
        "redis:/:s3cret@host",
        "redis://:s3cret x",
        "s3cret",
        "s3cret://x y",
        "redis//s3cret@h",
    ],
)
def test_store_that_cannot_be_read_is_not_shown(store: str) -> None:
    with pytest.raises(SettingsError, match=r"^DIP_STORE: holds '(redis://)?\*\*\*'; allowed are") as caught:
        load_settings(store=store)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(load_settings(store="redis://:s3cret@host"))


@pytest.mark.parametrize(
    "store", ["memory://", "redis://localhost:6379/0", "redis://somewhere", "rediss://user:secret@10.0.0.1:6380/3"]
)
def test_stores_that_are_allowed(store: str) -> None:
    assert load_settings(store=store).store == store
