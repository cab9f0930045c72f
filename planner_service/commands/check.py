"""``dip check``: a plan against the request that it answers."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from dip.errors import InvalidRequestError
from dip.planner.v1 import planner_pb2 as pb

from planner_service.commands.failure import CommandError
from planner_service.commands.files import as_message, read_json, read_message

if TYPE_CHECKING:
    import argparse

    from planner_service.check import CheckResult

DESCRIPTION = """Checks a plan against the request that it answers. Prints every fault, then a line of figures as JSON.
Exits 0 where the plan is valid, 1 where it is not, 2 where the request or the files are no good."""
SHOWN_FAULTS = 40
VALID, FAULTY = 0, 1


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("check", help="check a plan against its request", description=DESCRIPTION)
    parser.add_argument("request", metavar="request.json", help="the PlanRequest; - reads standard input")
    parser.add_argument("plan", metavar="plan.json", help="the Plan or PlanResponse")
    parser.add_argument("--strict", action="store_true", help="a digest that is not the plan's own is a fault, too")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check the plan and print what was found."""
    from planner_service.check import check_plan

    request = read_message(arguments.request, pb.PlanRequest())
    value = read_json(arguments.plan)
    try:
        plan = as_message(value.get("plan", value), pb.Plan(), arguments.plan)
    except CommandError as error:
        print(f"fault: {error}")
        return FAULTY
    try:
        result = check_plan(request, plan)
    except InvalidRequestError as error:
        raise CommandError(f"{arguments.request} breaks the contract:\n{error}") from error
    return _report(result, arguments.strict)


def _report(result: CheckResult, strict: bool) -> int:
    faults = [*result.faults, *(result.warnings if strict else ())]
    for fault in faults[:SHOWN_FAULTS]:
        print(f"fault: {fault}")
    if len(faults) > SHOWN_FAULTS:
        print(f"and {len(faults) - SHOWN_FAULTS} more")
    for warning in () if strict else result.warnings:
        print(f"warning: {warning}")
    print(json.dumps(dataclasses.asdict(result.figures) if result.figures else {}))
    return FAULTY if faults else VALID
