"""``dip serve``: runs the planner until SIGTERM or SIGINT."""

from __future__ import annotations

import os
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
    parser.add_argument("--socket-mode", metavar="MODE", help="DIP_SOCKET_MODE: permissions of a UNIX socket, octal")
    parser.add_argument("--tls-cert-file", metavar="FILE", help="DIP_TLS_CERT_FILE: certificate chain (PEM)")
    parser.add_argument("--tls-key-file", metavar="FILE", help="DIP_TLS_KEY_FILE: its private key (PEM)")
    parser.add_argument(
        "--tls-client-ca-file", metavar="FILE", help="DIP_TLS_CLIENT_CA_FILE: authorities of clients (PEM), for mTLS"
    )
    parser.add_argument("--access-file", metavar="FILE", help="DIP_ACCESS_FILE: who may call by which token (TOML)")
    parser.add_argument(
        "--allow-insecure",
        action="store_const",
        const=True,
        help="DIP_ALLOW_INSECURE: listen beyond this machine without TLS, or without knowing who calls",
    )
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
    parser.add_argument("--log-format", metavar="FORMAT", help="DIP_LOG_FORMAT: text, or json: an object a line")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve."""
    # gRPC writes a line for each handshake that fails: whoever can connect could fill the log, in no format of ours. It
    # reads this when it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from planner_service.server.main import serve
    from planner_service.settings import SettingsError, load_settings

    try:
        settings = load_settings(
            listen=arguments.listen,
            socket_mode=arguments.socket_mode,
            tls_cert_file=arguments.tls_cert_file,
            tls_key_file=arguments.tls_key_file,
            tls_client_ca_file=arguments.tls_client_ca_file,
            access_file=arguments.access_file,
            allow_insecure=arguments.allow_insecure,
            health_listen=arguments.health_listen,
            metrics_listen=arguments.metrics_listen,
            store=arguments.store,
            search_workers=arguments.search_workers,
            log_level=arguments.log_level,
            log_format=arguments.log_format,
        )
    except SettingsError as error:
        raise CommandError(str(error)) from error
    return serve(settings)
