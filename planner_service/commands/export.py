"""``dip export``: a plan as a trace for Perfetto and as a picture."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dip.planner.v1 import planner_pb2 as pb

from planner_service.commands.failure import CommandError
from planner_service.commands.files import read_message, write_text

if TYPE_CHECKING:
    import argparse

DESCRIPTION = """Writes a plan as a trace, which https://ui.perfetto.dev and chrome://tracing open, and as a picture.
With the reports of an executed iteration both show planned and measured."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("export", help="a plan as trace and picture", description=DESCRIPTION)
    parser.add_argument("plan", metavar="plan.json", help="the Plan; - reads standard input")
    parser.add_argument("--executed", metavar="executed.json", help="a GetPlanResponse with the reports of its ranks")
    parser.add_argument("--trace", metavar="trace.json", help="where the trace goes; - is standard output")
    parser.add_argument("--picture", metavar="plan.png", help="where the picture goes: .png, .svg or .pdf")
    parser.add_argument("--title", default="", metavar="TEXT", help="stands above the picture")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write what is asked for."""
    if not (arguments.trace or arguments.picture):
        raise CommandError("nothing to write: give --trace, --picture or both")
    plan = read_message(arguments.plan, pb.Plan())
    reports: list[pb.ReportExecutionRequest] = []
    if arguments.executed:
        reports = list(read_message(arguments.executed, pb.GetPlanResponse()).reports)
    try:
        if arguments.trace:
            write_trace(arguments.trace, plan, reports)
        if arguments.picture:
            write_picture(arguments.picture, plan, reports, title=arguments.title)
    except (ValueError, KeyError) as error:
        raise CommandError(f"{arguments.executed or arguments.plan}: {error}") from error
    return 0


def write_trace(path: str, plan: pb.Plan, reports: list[pb.ReportExecutionRequest]) -> None:
    """Write the trace of a plan as JSON."""
    from planner_service.export.trace import chrome_trace

    write_text(path, json.dumps(chrome_trace(plan, reports)) + "\n")


def write_picture(path: str, plan: pb.Plan, reports: list[pb.ReportExecutionRequest], *, title: str) -> None:
    """Draw a plan.

    Raises
    ------
    CommandError
        Where matplotlib is missing, or the file cannot be written.
    """
    from planner_service.export.picture import PictureError, draw_plan

    try:
        figure = draw_plan(plan, reports, title=title)
    except PictureError as error:
        raise CommandError(f"cannot write {path}: {error}") from error
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot write {path}: {error}") from error
