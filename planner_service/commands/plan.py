"""``dip plan``: plans one batch and writes the plan."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from dip.errors import CannotFitError, InvalidRequestError
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_plan_request

from planner_service.commands.failure import CANNOT_FIT, CommandError
from planner_service.commands.files import STANDARD_STREAM, message_text, read_message, write_text
from planner_service.commands.table import plan_table

if TYPE_CHECKING:
    import argparse

    from planner_service.partition.report import ChoiceReport

EVALUATIONS_PER_MS = 10
"""Schedules that count as a millisecond where the clock does not decide: about as many as are tried of 1,000 tasks."""

MOST_WORKERS = 256

_CLEARED = "\r\x1b[K"
"""Empties a terminal's line."""

DESCRIPTION = """Plans one batch, writes the plan and prints a short table of it. Exits 2 where the request is no good,
3 where the batch cannot fit the memory of a rank."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("plan", help="plan one batch", description=DESCRIPTION)
    parser.add_argument("request", metavar="request.json", help="the PlanRequest; - reads standard input")
    parser.add_argument("-o", "--out", required=True, metavar="plan.json", help="where to; - is standard output")
    parser.add_argument("--budget-ms", type=int, metavar="MS", help="search time (default: the request's, else 2000)")
    parser.add_argument(
        "--partition-budget-ms",
        type=int,
        metavar="MS",
        help="most time for a partition where the request has none (default: 5000)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of the search (default: the request's)")
    parser.add_argument("--workers", type=int, metavar="N", help="cores to search on (default: half of them)")
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="count schedules instead of milliseconds: the same request and seed give the same plan",
    )
    parser.add_argument("--fallback", action="store_true", help="no search: the schedule that trainers fall back to")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Plan, write the plan, print a table of it."""
    request = read_message(arguments.request, pb.PlanRequest())
    if arguments.budget_ms is not None:
        request.job.options.budget_ms = _int64("--budget-ms", arguments.budget_ms, least=1)
    if arguments.seed is not None:
        request.job.options.seed = _int64("--seed", arguments.seed, least=0)
    try:
        validate_plan_request(request)
        plan = _fallback(request) if arguments.fallback else _search(request, arguments)
    except InvalidRequestError as error:
        raise CommandError(f"{arguments.request} breaks the contract:\n{error}") from error
    except CannotFitError as error:
        raise CommandError(f"{arguments.request} cannot fit: {error}", CANNOT_FIT) from error
    write_text(arguments.out, message_text(plan))
    print(plan_table(request, plan), file=_talk(arguments))
    return 0


def _search(request: pb.PlanRequest, arguments: argparse.Namespace) -> pb.Plan:
    budget_ms, workers = arguments.partition_budget_ms, arguments.workers
    if budget_ms is not None:
        _int64("--partition-budget-ms", budget_ms, least=1)
    if workers is not None and not 1 <= workers <= MOST_WORKERS:
        raise CommandError(f"--workers is {workers}, must be from 1 to {MOST_WORKERS}")
    from planner_service.kernel_cache import are_compiled
    from planner_service.planning import DEFAULT_BUDGET_MS, PARTITION_BUDGET_MS, make_plan
    from planner_service.pool.cores import default_workers, usable_cores
    from planner_service.warmup import compile_kernels, load_kernels

    # in time of its own, not of the search
    if are_compiled():
        load_kernels()
    else:
        print("Compiling the search's kernels, once for this installation (about a minute).", file=sys.stderr)
        compile_kernels()
    options = request.job.options
    if arguments.deterministic and not options.max_evaluations:
        options.max_evaluations = (options.budget_ms or DEFAULT_BUDGET_MS) * EVALUATIONS_PER_MS
    return make_plan(
        request,
        partition_budget_ms=budget_ms or PARTITION_BUDGET_MS,
        cores=workers or default_workers(usable_cores()),
        on_choice=lambda report: _explain(report, _talk(arguments)),
        on_progress=_show_progress if sys.stderr.isatty() else None,
    )


def _explain(report: ChoiceReport, stream: TextIO) -> None:
    """Say why the partition was chosen, in place of how far the choice is."""
    if sys.stderr.isatty():
        print(_CLEARED, end="", file=sys.stderr, flush=True)
    print(report.text(), file=stream)


def _show_progress(tried: int, best_us: int | None) -> None:
    """Say on one line of the terminal how far the choice of a partition is."""
    best = "none fits yet" if best_us is None else f"the best takes {best_us / 1000:,.1f} ms"
    print(f"{_CLEARED}choosing a partition: {tried} tried, {best}", end="", file=sys.stderr, flush=True)


def _talk(arguments: argparse.Namespace) -> TextIO:
    """Where words for people go: the plan itself may be what standard output carries."""
    return sys.stderr if arguments.out == STANDARD_STREAM else sys.stdout


def _fallback(request: pb.PlanRequest) -> pb.Plan:
    """Plan as trainers do alone: on the loaded partition, or else on the one that they make without a planner.

    Where that one cannot fit, a planner's choice may.
    """
    from dip.fallback import fallback_plan
    from dip.partition import default_partition

    job, batch = request.job, request.batch
    if request.partition.chunks:
        return fallback_plan(job, request.partition, batch)
    try:
        return fallback_plan(job, default_partition(job, batch), batch)
    except CannotFitError:
        from planner_service.planning import make_partition

        return fallback_plan(job, make_partition(job, batch), batch)


def _int64(option: str, value: int, *, least: int) -> int:
    if not least <= value < 2**63:
        raise CommandError(f"{option} is {value}, must be from {least} to {2**63 - 1}")
    return value
