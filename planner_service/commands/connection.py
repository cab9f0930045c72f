"""What the commands share that ask a running planner: options, the connection, and how they end without an answer."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Final

from planner_service.commands.failure import (
    BAD_INPUT,
    NO_SUCH_JOB,
    NOT_ALLOWED,
    PLANNER_FAILED,
    UNREACHABLE,
    CommandError,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from dip.connecting import ClientFiles, Endpoints

    from planner_service.watching.planner import PlannerClient

DEFAULT_ENDPOINT: Final = "127.0.0.1:50061"
"""Where `dip serve` listens unless it is told otherwise."""

EXIT_CODES: Final = (
    f"Exits {BAD_INPUT} for bad input, {UNREACHABLE} where no planner answers, {NO_SUCH_JOB} where it knows no such "
    f"job or iteration, {NOT_ALLOWED} where it does not tell this caller, {PLANNER_FAILED} where it fails."
)


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which planner is asked, and how."""
    group = parser.add_argument_group("connection", "Options go before the environment's variables.")
    group.add_argument(
        "--endpoint",
        metavar="HOST:PORT",
        help="the planner, or unix:///path of its socket; several that share a store are separated by commas "
        f"(DIP_PLANNER_ENDPOINT, else {DEFAULT_ENDPOINT})",
    )
    group.add_argument("--ca-file", metavar="PEM", help="whom to trust, which asks for TLS (DIP_TLS_CA_FILE)")
    group.add_argument("--cert-file", metavar="PEM", help="one's own certificate (DIP_CLIENT_CERT_FILE)")
    group.add_argument("--key-file", metavar="PEM", help="the certificate's private key (DIP_CLIENT_KEY_FILE)")
    group.add_argument("--token-file", metavar="FILE", help="a file with one's token (DIP_TOKEN_FILE)")


@contextlib.contextmanager
def connected(arguments: argparse.Namespace) -> Iterator[PlannerClient]:
    """Yield a client of the planner that the arguments, or the environment, name.

    Raises
    ------
    CommandError
        They cannot be used; or a question that is asked in the block has no answer.
    """
    # gRPC's own log lines would be drawn into tables; what they tell is in the errors.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from dip.connecting import ClientFilesError
    from dip.misspelt import misspelt

    from planner_service.watching import failures
    from planner_service.watching.planner import PlannerClient

    for slip in misspelt(os.environ):
        print(f"dip: {slip}", file=sys.stderr)
    try:
        with PlannerClient(_endpoints(arguments), _files(arguments)) as client:
            yield client
    except ClientFilesError as error:
        raise CommandError(str(error)) from error
    except failures.AwayError as error:
        raise CommandError(str(error), UNREACHABLE) from error
    except failures.NoSuchJobError as error:
        raise CommandError(str(error), NO_SUCH_JOB) from error
    except failures.BadQuestionError as error:
        raise CommandError(str(error), BAD_INPUT) from error
    except failures.NotAllowedError as error:
        raise CommandError(str(error), NOT_ALLOWED) from error
    except failures.WatchError as error:
        raise CommandError(str(error), PLANNER_FAILED) from error


def _endpoints(arguments: argparse.Namespace) -> Endpoints:
    from dip.connecting import Endpoints
    from dip.connecting.variables import PLANNER_ENDPOINT

    said = "--endpoint" if arguments.endpoint is not None else PLANNER_ENDPOINT
    text = os.environ.get(PLANNER_ENDPOINT, "") if arguments.endpoint is None else arguments.endpoint
    try:
        return Endpoints.parse(text if text or arguments.endpoint is not None else DEFAULT_ENDPOINT)
    except ValueError as error:
        raise CommandError(f"{said}: {error}") from error


def _files(arguments: argparse.Namespace) -> ClientFiles:
    from dip.connecting import ClientFiles
    from dip.connecting.variables import CA_FILE, CERT_FILE, KEY_FILE, TOKEN_FILE

    given = {
        CA_FILE: arguments.ca_file,
        CERT_FILE: arguments.cert_file,
        KEY_FILE: arguments.key_file,
        TOKEN_FILE: arguments.token_file,
    }
    return ClientFiles.from_environment({**os.environ, **{name: path for name, path in given.items() if path}})
