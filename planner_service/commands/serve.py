"""``dip serve``: runs the planner until SIGTERM or SIGINT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.commands.failure import CommandError

if TYPE_CHECKING:
    import argparse

DESCRIPTION = """Runs the planner until SIGTERM or SIGINT. What no argument says comes from the environment, then from
the defaults."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand; what is not given comes from the environment, then from the defaults."""
    parser = commands.add_parser("serve", help="run the planner", description=DESCRIPTION)
    parser.add_argument("--listen", metavar="ADDRESS", help="DIP_LISTEN: host:port or unix:///path")
    parser.add_argument("--health-listen", metavar="ADDRESS", help="DIP_HEALTH_LISTEN: where probes ask")
    parser.add_argument(
        "--metrics-listen", metavar="ADDRESS", help="DIP_METRICS_LISTEN: host:port for Prometheus, or off"
    )
    parser.add_argument(
        "--store",
        metavar="URL",
        help="DIP_STORE: memory://, or redis://host:port/database, which planners share; a password belongs into the "
        "environment, as process lists show arguments",
    )
    parser.add_argument("--search-workers", metavar="N", help="DIP_SEARCH_WORKERS: solver processes; 0 chooses")
    parser.add_argument("--log-level", metavar="LEVEL", help="DIP_LOG_LEVEL: DEBUG, INFO, WARNING or ERROR")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve."""
    from planner_service.server.main import serve
    from planner_service.settings import SettingsError, load_settings

    try:
        settings = load_settings(
            listen=arguments.listen,
            health_listen=arguments.health_listen,
            metrics_listen=arguments.metrics_listen,
            store=arguments.store,
            search_workers=arguments.search_workers,
            log_level=arguments.log_level,
        )
    except SettingsError as error:
        raise CommandError(str(error)) from error
    return serve(settings)
