"""``dip jobs``: the jobs of a running planner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.commands.connection import EXIT_CODES, add_connection_options, connected
from planner_service.commands.watched import Forms, add_form_options, show

if TYPE_CHECKING:
    import argparse

DESCRIPTION = f"""Lists the jobs of a running planner that the caller may see: which iteration ranks need, up to which
there are plans, and how often ranks fell back of late. {EXIT_CODES}"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("jobs", help="list the jobs of a running planner", description=DESCRIPTION)
    add_form_options(parser)
    add_connection_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """List the jobs, once or over and over."""
    from planner_service.watching.documents import away_document, jobs_document
    from planner_service.watching.jobs_table import jobs_table
    from planner_service.watching.lines import JobsLines

    with connected(arguments) as planner:
        forms = Forms(
            page=lambda found, width: jobs_table(found, width=width),
            changes=JobsLines().changed,
            document=lambda found: jobs_document(found, planner.endpoint),
            away=lambda error: away_document(error, planner.endpoint),
        )
        show(planner.jobs, forms, arguments)
    return 0
