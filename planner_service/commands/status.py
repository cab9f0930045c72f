"""``dip status JOB``: what a job of a running planner is, and how its newest iterations went."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from dip.planner.v1 import planner_pb2 as pb
from dip.validation.limits import MAX_INT64, MAX_RECENT_ITERATIONS, MAX_REPLICAS

from planner_service.commands.connection import EXIT_CODES, add_connection_options, connected
from planner_service.commands.failure import NO_SUCH_JOB, CommandError
from planner_service.commands.watched import Forms, add_form_options, show

if TYPE_CHECKING:
    import argparse

    from planner_service.watching.planner import PlannerClient

DESCRIPTION = f"""Shows a job of a running planner: its modules and where their layers are, how far planning is ahead,
and of its newest iterations what was planned, what ranks measured, and why ranks ran the fixed fallback instead. With
--iteration it explains one of them in sentences. {EXIT_CODES}"""

_ITERATIONS: Final = 12
_SHOWN_REPLICAS: Final = 8


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("status", help="show one job of a running planner", description=DESCRIPTION)
    parser.add_argument("job", metavar="JOB", help="its name; `dip jobs` lists them")
    parser.add_argument(
        "--iterations",
        type=int,
        default=_ITERATIONS,
        metavar="N",
        help=f"how many of the newest are shown (default: {_ITERATIONS}, at most {MAX_RECENT_ITERATIONS})",
    )
    parser.add_argument("--iteration", type=int, metavar="N", help="explain this one")
    parser.add_argument("--replica", type=int, metavar="R", help="of this replica alone")
    add_form_options(parser)
    add_connection_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show the job, once or over and over, or explain one iteration."""
    request = _request(arguments)
    with connected(arguments) as planner:
        if arguments.iteration is not None:
            _explain(planner, request, arguments)
        else:
            _show(planner, request, arguments)
    return 0


def _request(arguments: argparse.Namespace) -> pb.GetJobRequest:
    if not 0 <= arguments.iterations <= MAX_RECENT_ITERATIONS:
        raise CommandError(f"--iterations is {arguments.iterations}, must be from 0 to {MAX_RECENT_ITERATIONS}")
    request = pb.GetJobRequest(job_id=arguments.job, recent_iterations=arguments.iterations)
    if arguments.replica is not None:
        if not 0 <= arguments.replica < MAX_REPLICAS:
            raise CommandError(f"--replica is {arguments.replica}, must be from 0 to one less than the job has")
        request.replica = arguments.replica
    if arguments.iteration is not None:
        if not 0 <= arguments.iteration <= MAX_INT64:
            raise CommandError(f"--iteration is {arguments.iteration}, must be 0 or more")
        if arguments.watch:
            raise CommandError("--watch goes with the newest iterations, not with --iteration")
        request.recent_iterations, request.last_iteration = 1, arguments.iteration
    return request


def _show(planner: PlannerClient, request: pb.GetJobRequest, arguments: argparse.Namespace) -> None:
    from planner_service.watching.documents import away_document, job_document
    from planner_service.watching.job_page import job_page
    from planner_service.watching.lines import JobLines

    forms = Forms(
        page=lambda found, width: job_page(found, width=width),
        changes=JobLines().changed,
        document=lambda found: job_document(found, planner.endpoint),
        away=lambda error: away_document(error, planner.endpoint),
    )
    show(lambda: planner.job(request), forms, arguments)


def _explain(planner: PlannerClient, request: pb.GetJobRequest, arguments: argparse.Namespace) -> None:
    from planner_service.watching.documents import job_document
    from planner_service.watching.explanation import explanation

    found = planner.job(request)
    statuses = [status for status in found.recent if status.iteration == arguments.iteration]
    if not statuses:
        raise CommandError(_unknown(planner, request), NO_SUCH_JOB)
    if arguments.json:
        del found.recent[:]
        found.recent.extend(statuses)
        print(json.dumps(job_document(found, planner.endpoint), indent=1))
        return
    # Those first that have something to explain.
    statuses.sort(key=lambda status: (not any(rank.fallback for rank in status.ranks), status.replica))
    print("\n\n".join(explanation(status, found.status) for status in statuses[:_SHOWN_REPLICAS]))
    if len(statuses) > _SHOWN_REPLICAS:
        print(f"\n{len(statuses) - _SHOWN_REPLICAS} more replicas; --replica names one.")


def _unknown(planner: PlannerClient, request: pb.GetJobRequest) -> str:
    asked = request.last_iteration
    request.ClearField("last_iteration")
    request.recent_iterations = MAX_RECENT_ITERATIONS
    known = [status.iteration for status in planner.job(request).recent]
    of = f" of replica {request.replica}" if request.HasField("replica") else ""
    kept = f"kept are {min(known)} to {max(known)}" if known else "it knows of no iteration yet"
    return f"the planner knows nothing of iteration {asked}{of} of job {request.job_id!r}; {kept}"
