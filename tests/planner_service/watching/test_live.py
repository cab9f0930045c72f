"""Shows that a screen is drawn for every answer and size, says when there is none, and leaves the last behind."""

from __future__ import annotations

import io
import os
import re
import signal
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.text import Text

from planner_service.watching import live
from planner_service.watching.failures import AwayError
from planner_service.watching.live import ScreenDisplay, watch


class Terminal:
    """A terminal whose size is set, and what is drawn on it."""

    def __init__(self) -> None:
        self.file = io.StringIO()
        self.console = Console(file=self.file, force_terminal=True, width=40, height=10, color_system=None)

    def drawn(self) -> str:
        """Return what was drawn since the last call."""
        text = self.file.getvalue()
        self.file.seek(0)
        self.file.truncate()
        return text


def page(found: str, width: int) -> Text:
    return Text(f"{found} in {width} columns")


def test_a_screen_shows_answers_and_outages_and_leaves_the_last() -> None:
    terminal = Terminal()
    answers: list[str | AwayError] = ["one", AwayError("gone\nand how", hint="Look."), AwayError("gone"), "two"]
    seen: list[str] = []

    def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, AwayError):
            raise answer
        return answer

    class Display(ScreenDisplay[str]):
        def pause(self, seconds: float) -> None:
            seen.append(terminal.drawn())
            if not answers:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Display(terminal.console, page) as display:
        watch(ask, display, interval_s=1)
    assert "one in 40 columns" in seen[0]
    assert re.search(r"No answer for \d+ s: gone; and how", seen[1])
    assert "Look" not in seen[1]
    assert "one in 40 columns" in seen[1]
    assert "two in 40 columns" in seen[3]
    assert "No answer" not in seen[3]
    left = terminal.drawn()
    assert left.rstrip().endswith("two in 40 columns")
    assert left.index("\x1b[?1049l") < left.index("two")  # behind the end of the alternate screen


def test_a_resize_draws_anew_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    before = signal.getsignal(signal.SIGWINCH)
    with ScreenDisplay(terminal.console, page) as display:
        display.show("one")
        terminal.drawn()
        terminal.console.width = 20
        os.kill(os.getpid(), signal.SIGWINCH)
        # An hour's pause, which is over as soon as the resize has ended the first wait.
        monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=iter([0.0, 0.0, 3600.0]).__next__))
        display.pause(3600)
        assert "one in 20 columns" in terminal.drawn().replace("\n", "")
    assert signal.getsignal(signal.SIGWINCH) == before


def test_a_terminated_watch_gives_the_screen_back() -> None:
    terminal = Terminal()

    def terminated() -> None:
        with ScreenDisplay(terminal.console, page) as display:
            display.show("one")
            os.kill(os.getpid(), signal.SIGTERM)
            display.pause(5)

    with pytest.raises(SystemExit) as ended:
        terminated()
    assert ended.value.code == 143
    assert "\x1b[?1049l" in terminal.drawn()


def test_the_first_question_must_have_an_answer() -> None:
    def ask() -> str:
        raise AwayError("gone")

    with pytest.raises(AwayError):
        watch(ask, ScreenDisplay(Terminal().console, page), interval_s=1)
