"""``dip workload``: writes a planning request for one of the paper's model set-ups."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from planner_service.commands.failure import CommandError
from planner_service.commands.files import write_text

if TYPE_CHECKING:
    import argparse

DESCRIPTION = """Writes a planning request: a model set-up of the DIP paper with a batch drawn by its packing rules."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    from planner_service.check.setups import SETUPS
    from planner_service.check.workload import MIXES

    parser = commands.add_parser("workload", help="write a planning request", description=DESCRIPTION)
    parser.add_argument("config", choices=SETUPS, metavar="CONFIG", help=f"model set-up: {', '.join(SETUPS)}")
    parser.add_argument("--microbatches", type=int, default=16, help="microbatches of the batch (default: 16)")
    parser.add_argument("--seed", type=int, default=0, help="which batch (default: 0)")
    parser.add_argument("--mix", choices=MIXES, default="web", help="how images come together (default: web)")
    parser.add_argument("-o", "--out", default="-", metavar="FILE", help="where to (default: standard output)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the request."""
    from planner_service.check.workload import workload_json

    try:
        request = workload_json(arguments.config, arguments.microbatches, arguments.seed, arguments.mix)
    except ValueError as error:
        raise CommandError(str(error)) from error
    write_text(arguments.out, json.dumps(request) + "\n")
    return 0
