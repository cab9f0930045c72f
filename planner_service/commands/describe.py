"""``dip describe``: what a job costs, from a description of its model or from the job itself."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING

from dip.errors import InvalidRequestError

from planner_service.commands.failure import CommandError
from planner_service.commands.files import STANDARD_STREAM, message_text, write_text

if TYPE_CHECKING:
    import argparse

    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.costs.account import JobCost

DESCRIPTION = """Prints what a job costs: time and memory of each module for a batch, how small its sub-microbatches may
be, and the load of each rank. Reads a description of a model (docs/costs.md; .toml, or JSON with "modules"), a JobSpec,
or a PlanRequest, whose batch and partition then count. Else the batch is a typical one, and the partition that which
trainers load without a planner. Exits 2 where the input is no good."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("describe", help="print what a job costs", description=DESCRIPTION)
    parser.add_argument(
        "input", metavar="FILE", help="description, JobSpec or PlanRequest; - is JSON on standard input"
    )
    parser.add_argument("--gpus", metavar="gpus.toml", help="more GPUs for a description to name")
    parser.add_argument("-o", "--out", metavar="job.json", help="write the JobSpec; - is standard output")
    parser.add_argument("--request", metavar="request.json", help="write a PlanRequest: the job and its typical batch")
    parser.add_argument("--json", action="store_true", help="print JSON, in microseconds and bytes")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Read, write the messages that are asked for, print the account."""
    from planner_service.commands.costed import read_costed

    on_stdout = [arguments.out, arguments.request].count(STANDARD_STREAM)
    if on_stdout > 1:
        raise CommandError("-o and --request are both -, must be at most one of them")
    request = read_costed(arguments.input, arguments.gpus)
    cost = _account(request, arguments.input)
    if arguments.out:
        write_text(arguments.out, message_text(request.job))
    if arguments.request:
        write_text(arguments.request, message_text(request))
    # a message may be what standard output carries
    print(_text(cost, as_json=arguments.json), file=sys.stderr if on_stdout else sys.stdout)
    return 0


def _account(request: pb.PlanRequest, source: str) -> JobCost:
    from dip.partition import default_partition
    from dip.validation import validate_plan_request

    from planner_service.costs.account import job_cost

    try:
        validate_plan_request(request)
    except InvalidRequestError as error:
        raise CommandError(f"{source} breaks the contract:\n{error}") from error
    partition = request.partition if request.partition.chunks else default_partition(request.job, request.batch)
    return job_cost(request.job, request.batch, partition)


def _text(cost: JobCost, *, as_json: bool) -> str:
    from planner_service.commands.cost_table import cost_table

    return json.dumps(dataclasses.asdict(cost)) if as_json else cost_table(cost)
