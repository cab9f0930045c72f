"""``dip bench``: measures how good plans are and what they cost, and makes reports of results."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from planner_service.commands.failure import CommandError
from planner_service.commands.files import STANDARD_STREAM, read_json, read_text, write_text

if TYPE_CHECKING:
    from planner_service.bench.result import Result
    from planner_service.bench.settings import Settings

DESCRIPTION = """Measures plans of the DIP paper's set-ups against baselines in the simulator, and checks every plan.
Rows are kept in FILE.partial as they come: the same command goes on where it was cut short. With --report it measures
nothing and makes reports of results. Exits 0; 1 where a plan has a fault; 2 for bad input."""

FAULTY = 1
PARTIAL = ".partial"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("bench", help="measure plans against baselines", description=DESCRIPTION)
    measuring = parser.add_argument_group("what to measure")
    measuring.add_argument("--suite", type=_names, metavar="NAMES", help="suites, by commas, or all (default: paper)")
    measuring.add_argument("--configs", type=_names, metavar="NAMES", help="set-ups (default: the paper's five)")
    measuring.add_argument("--mix", type=_names, metavar="NAMES", help="mixes of images (default: web,documents)")
    measuring.add_argument("--seeds", type=_numbers, metavar="N,N", help="batches of each mix (default: 0,1,2)")
    measuring.add_argument("--microbatches", type=int, metavar="N", help="of each batch (default: 16)")
    measuring.add_argument("--budget-ms", type=int, metavar="MS", help="search time of each plan (default: 1000)")
    measuring.add_argument("--cores", type=int, metavar="N", help="that a search uses (default: all, shared by jobs)")
    measuring.add_argument("--jobs", type=int, default=1, metavar="N", help="cases side by side (default: 1)")
    measuring.add_argument(
        "--baselines", action="append", metavar="MODULE:NAME", help="further ones (default: PyTorch's orders)"
    )
    measuring.add_argument("--time-limit", type=float, metavar="S", help="start nothing more after so many seconds")
    measuring.add_argument("--json", metavar="FILE", help="where results go")
    reports = parser.add_argument_group("reports of what was measured")
    reports.add_argument("--report", nargs="+", metavar="FILE", help="results to report, put together")
    reports.add_argument("--markdown", metavar="FILE", help="write the whole report")
    reports.add_argument("--plots", metavar="FOLDER", help="write its pictures, which it then shows")
    reports.add_argument("--into", nargs="+", default=[], metavar="FILE", help="renew tables between their marks")
    reports.add_argument("--keep", metavar="FILE", help="write all results into one file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure or read results, and report."""
    if arguments.report:
        result = _read(arguments.report)
    elif arguments.json:
        result = _measure(arguments)
    else:
        raise CommandError("--json says where results go, or --report which ones to report; one of them is needed")
    _report(result, arguments)
    faults = [fault for suite in result.suites.values() for fault in suite.faults]
    for fault in faults:
        print(f"fault: {fault}", file=sys.stderr)
    return FAULTY if faults else 0


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of whole numbers by commas") from error


def _settings(arguments: argparse.Namespace) -> Settings:
    from planner_service.bench.peers import TORCH_ORDERS, load_peers
    from planner_service.bench.settings import Settings
    from planner_service.pool.cores import usable_cores

    if arguments.jobs < 1:
        raise CommandError(f"--jobs is {arguments.jobs}, must be at least 1")
    cores = max(1, int(usable_cores() / arguments.jobs)) if arguments.cores is None else arguments.cores
    given = {
        "configs": arguments.configs,
        "mixes": arguments.mix,
        "seeds": arguments.seeds,
        "microbatches": arguments.microbatches,
        "budget_ms": arguments.budget_ms,
        "cores": cores,
        "baselines": tuple(arguments.baselines or (TORCH_ORDERS,)),
    }
    try:
        settings = Settings(**{name: value for name, value in given.items() if value is not None})
        load_peers(settings.baselines)
    except ValueError as error:
        raise CommandError(str(error)) from error
    return settings


def _suites(names: tuple[str, ...] | None) -> list[str]:
    from planner_service.bench.suites.registry import ALL, SUITES

    wanted = list(dict.fromkeys(name for one in names or ("paper",) for name in (ALL if one == "all" else (one,))))
    for name in wanted:
        if name not in SUITES:
            raise CommandError(f"suite names {name!r}, must be of {', '.join(SUITES)} or all")
    return wanted


def _measure(arguments: argparse.Namespace) -> Result:
    from planner_service.bench.partial import Partial
    from planner_service.bench.run import Run

    suites, settings = _suites(arguments.suite), _settings(arguments)
    if arguments.time_limit is not None and arguments.time_limit <= 0:
        raise CommandError(f"--time-limit is {arguments.time_limit:g}, must be above 0")
    if arguments.json == STANDARD_STREAM:
        raise CommandError("--json is -, must be a file: rows are kept beside it as they come")
    path = Path(arguments.json + PARTIAL)
    try:
        partial = Partial(path, {"suites": suites, "settings": settings.json(), "jobs": arguments.jobs})
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from error
    limit_s = float("inf") if arguments.time_limit is None else arguments.time_limit
    result = Run(suites, settings, partial, _say, jobs=arguments.jobs, time_limit_s=limit_s).result()
    _write(arguments.json, result)
    if not any(suite.unfinished for suite in result.suites.values()):
        partial.remove()
    return result


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _read(paths: list[str]) -> Result:
    from planner_service.bench.result import Result

    result = Result()
    for path in paths:
        try:
            result = result.merged(Result.of(read_json(path)))
        except ValueError as error:
            raise CommandError(f"{path}: {error}") from error
    return result


def _write(path: str, result: Result) -> None:
    from planner_service.bench.report.targets import summary

    write_text(path, result.text(summary(result)))


def _report(result: Result, arguments: argparse.Namespace) -> None:
    from planner_service.bench.report.markdown import whole_report
    from planner_service.bench.report.marks import MarkError, fill
    from planner_service.bench.report.tables import TABLES

    if arguments.keep:
        _write(arguments.keep, result)
    pictures: dict[str, str] = {}
    if arguments.plots:
        pictures = _plots(result, arguments.plots, arguments.markdown)
    if arguments.markdown:
        write_text(arguments.markdown, whole_report(result, pictures))
    for path in arguments.into:
        try:
            filled = fill(read_text(path), {name: table.text(result) for name, table in TABLES.items()})
        except MarkError as error:
            raise CommandError(f"{path}: {error}") from error
        write_text(path, filled)
    if not (arguments.keep or arguments.markdown or arguments.into or arguments.plots):
        for table in TABLES.values():
            if any(result.rows(suite) for suite in table.suites):
                print(f"{table.title}\n\n{table.text(result)}\n")


def _plots(result: Result, folder: str, markdown: str | None) -> dict[str, str]:
    """Draw pictures; returns their paths as the report names them."""
    from planner_service.bench.report.plots import draw_all

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        return draw_all(result, Path(folder), Path(markdown).parent if markdown else Path())
    except OSError as error:
        raise CommandError(f"cannot write to {folder}: {error.strerror or error}") from error
    except ModuleNotFoundError as error:
        raise CommandError("pictures need matplotlib: pip install 'dip-planner[demo]'") from error
