"""Goes on asking, and shows every answer: on a terminal's screen, in lines, or as JSON."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, TypeVar

from rich.console import Group
from rich.live import Live
from rich.text import Text

from planner_service.watching.failures import WatchError
from planner_service.watching.words import ago, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import Console, RenderableType

    from planner_service.watching.documents import Document

T = TypeVar("T")
In = TypeVar("In", contravariant=True)


class Display(Protocol[In]):
    """Shows what a planner answers, and that it does not."""

    def show(self, found: In) -> None:
        """Show an answer."""

    def show_away(self, error: WatchError) -> None:
        """Show that there is none."""

    def pause(self, seconds: float) -> None:
        """Let time pass until the next question."""


def watch(ask: Callable[[], T], display: Display[T], *, interval_s: float) -> None:
    """Ask again and again until the user has seen enough (KeyboardInterrupt).

    The first question must have an answer. Later ones need not: a planner that is away, or was started again and does
    not know the job yet, may be back in time.

    Raises
    ------
    WatchError
        The first question has no answer.
    """
    display.show(ask())
    while True:
        display.pause(interval_s)
        try:
            found = ask()
        except WatchError as error:
            display.show_away(error)
        else:
            display.show(found)


class JsonDisplay(Generic[T]):
    """One object a line for every answer, and for every question without one.

    Parameters
    ----------
    document, away
        What is printed.
    write
        Takes a line.
    """

    def __init__(
        self, document: Callable[[T], Document], away: Callable[[WatchError], Document], write: Callable[[str], None]
    ) -> None:
        self._document = document
        self._away = away
        self._write = write

    def show(self, found: T) -> None:
        """Print an answer."""
        self._write(json.dumps(self._document(found)))

    def show_away(self, error: WatchError) -> None:
        """Print that there is none."""
        self._write(json.dumps(self._away(error)))

    def pause(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)


class LinesDisplay(Generic[T]):
    """A line with the time for every change.

    Parameters
    ----------
    changes
        What is new in an answer.
    write
        Takes a line.
    """

    def __init__(self, changes: Callable[[T], Iterable[str]], write: Callable[[str], None]) -> None:
        self._changes = changes
        self._write = write
        self._away = ""

    def show(self, found: T) -> None:
        """Print what is new."""
        if self._away:
            self._line("the planner answers again")
        self._away = ""
        for line in self._changes(found):
            self._line(line)

    def show_away(self, error: WatchError) -> None:
        """Print that there is no answer, once."""
        if error.message != self._away:
            self._line(error.message)
        self._away = error.message

    def pause(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def _line(self, text: str) -> None:
        self._write(f"{time.strftime('%H:%M:%S')} {printable(text)}")


class ScreenDisplay(Generic[T]):
    """A terminal's whole screen, drawn anew for every answer and when its size changes; a context manager.

    The last answer stays on the terminal after its end.

    Parameters
    ----------
    page
        Lays an answer out for so many columns.
    """

    def __init__(self, console: Console, page: Callable[[T, int], RenderableType]) -> None:
        self._console = console
        self._page = page
        self._live = Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop")
        self._found: T | None = None
        self._error: WatchError | None = None
        self._away_since_s = 0.0
        self._resized = threading.Event()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> ScreenDisplay[T]:
        self._stack.enter_context(_signals(self._resized))
        self._stack.enter_context(self._live)
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()
        if self._found is not None:
            self._console.print(self._page(self._found, self._console.width))

    def show(self, found: T) -> None:
        """Draw an answer."""
        self._found, self._error = found, None
        self._draw()

    def show_away(self, error: WatchError) -> None:
        """Draw above the last answer that there is none."""
        if self._error is None:
            self._away_since_s = time.monotonic()
        self._error = error
        self._draw()

    def pause(self, seconds: float) -> None:
        """Wait, and draw anew when the terminal's size changes."""
        ends_s = time.monotonic() + seconds
        while (left_s := ends_s - time.monotonic()) > 0:
            if self._resized.wait(left_s):
                self._resized.clear()
                self._draw()

    def _draw(self) -> None:
        parts: list[RenderableType] = []
        if self._error is not None:
            for_ms = round(1000 * (time.monotonic() - self._away_since_s))
            why = printable("; ".join(self._error.message.splitlines()))
            parts.append(Text(f"No answer for {ago(for_ms)}: {why}", style="bold red"))
            parts.append(Text("What follows was before that.\n", style="red"))
        if self._found is not None:
            parts.append(self._page(self._found, self._console.width))
        self._live.update(Group(*parts), refresh=True)


@contextlib.contextmanager
def _signals(resized: threading.Event) -> Iterator[None]:
    """Set an event whenever the terminal's size changes; let SIGTERM end the block, which gives the screen back."""

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {
        signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda *_: resized.set()),
        signal.SIGTERM: signal.signal(signal.SIGTERM, end),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
