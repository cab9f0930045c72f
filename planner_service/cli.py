"""The ``dip`` command: each subcommand lives in a file of :mod:`planner_service.commands`."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

from planner_service.commands import bench, check, describe, export, health, jobs, plan, serve, status, token, workload
from planner_service.commands.failure import BAD_INPUT, CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130
PIPE_CLOSED = 141
OWN_PACKAGES = ("dip", "planner_service")
INSTALL_ALL = "pip install 'dip-planner[planner]'"
"""What brings the packages that a node of trainers alone does without."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name.

    Parameters
    ----------
    argv
        Arguments after the program's name; those of the process where None.

    Returns
    -------
    int
        The exit code: 0 for success, 2 for bad input, others as the subcommand says. Whatever fails for a reason that
        the user can change is explained on standard error.
    """
    arguments = build_parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except CommandError as error:
        print(f"dip {arguments.command}: {error}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OWN_PACKAGES:
            raise
        print(f"dip {arguments.command}: no {error.name} here; it comes with {INSTALL_ALL}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away; what Python still holds for it must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    return code


def build_parser() -> argparse.ArgumentParser:
    """Describe all subcommands and their arguments."""
    parser = argparse.ArgumentParser(prog="dip", description="Pipeline schedules made for each batch.")
    parser.add_argument("--version", action="version", version=f"dip-planner {version('dip-planner')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (serve, jobs, status, health, token, plan, check, describe, export, workload, bench):
        command.add_parser(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
