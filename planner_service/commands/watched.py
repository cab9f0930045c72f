"""What the commands share that show something once, or over and over: in which form, and how often."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from planner_service.commands.failure import CommandError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from rich.console import Console, RenderableType

    from planner_service.watching.documents import Document
    from planner_service.watching.failures import WatchError

T = TypeVar("T")

_PIPE_WIDTH: Final = 10_000
"""Nothing is wrapped where there is no terminal: whoever reads may search for it."""
_LEAST_INTERVAL_S: Final = 0.1
_MOST_INTERVAL_S: Final = 86_400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Forms(Generic[T]):
    """The forms in which an answer is shown.

    Parameters
    ----------
    page
        For people, in so many columns.
    changes
        For people without a terminal: a line for everything that is new.
    document, away
        For programs: an answer, and that there is none.
    """

    page: Callable[[T, int], RenderableType]
    changes: Callable[[T], Iterable[str]]
    document: Callable[[T], Document]
    away: Callable[[WatchError], Document]


def add_form_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say in which form, and whether over and over."""
    parser.add_argument("--json", action="store_true", help="print a JSON object; with --watch one a line")
    parser.add_argument(
        "--watch",
        action="store_true",
        help="go on until Ctrl-C: redraw a terminal; elsewhere print a line for every change",
    )
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="S", help="seconds from one look to the next (default: 1)"
    )


def show(ask: Callable[[], T], forms: Forms[T], arguments: argparse.Namespace) -> None:
    """Show what the planner answers, once or over and over.

    Raises
    ------
    CommandError
        The interval is none.
    WatchError
        There is no answer.
    """
    interval_s = arguments.interval
    if not _LEAST_INTERVAL_S <= interval_s <= _MOST_INTERVAL_S or math.isnan(interval_s):
        raise CommandError(f"--interval is {interval_s:g}, must be from {_LEAST_INTERVAL_S:g} to {_MOST_INTERVAL_S:g}")
    if arguments.watch:
        _watch(ask, forms, interval_s, as_json=arguments.json)
    elif arguments.json:
        print(json.dumps(forms.document(ask()), indent=1))
    else:
        print_page(lambda width: forms.page(ask(), width))


def print_page(page: Callable[[int], RenderableType]) -> None:
    """Print a page on standard output: in the width of the terminal, without colours where that is none."""
    console = _console()
    with console.capture() as captured:
        console.print(page(console.width))
    # Not by the console itself: the command line ends as others do where the reader has gone.
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _watch(ask: Callable[[], T], forms: Forms[T], interval_s: float, *, as_json: bool) -> None:
    from planner_service.watching.live import JsonDisplay, LinesDisplay, ScreenDisplay, watch

    console = _console()
    if as_json:
        watch(ask, JsonDisplay(forms.document, forms.away, _write_line), interval_s=interval_s)
    elif sys.stdout.isatty() and console.is_terminal and not console.is_dumb_terminal:
        first = ask()  # what ends the command is not drawn on a screen that then disappears
        with ScreenDisplay(console, forms.page) as display:
            display.show(first)
            watch(ask, display, interval_s=interval_s)
    else:
        watch(ask, LinesDisplay(forms.changes, _write_line), interval_s=interval_s)


def _write_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _console() -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(highlight=False, markup=False, emoji=False, width=width)
