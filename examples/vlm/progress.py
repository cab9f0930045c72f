"""What a person sees of a training: a bar, and a line for each iteration. Rank 0 shows it, all others are silent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from examples.vlm.training import Step

HEADER = "iteration    loss  text only   planned  measured  bubble  schedule  waited"


class Progress:
    """A bar with a line above it for each iteration, and the same in a file of JSON lines.

    Parameters
    ----------
    total
        Number of iterations.
    path
        The file; its folder is made. None: no file.
    show
        Whether this process is the one that shows it.
    """

    def __init__(self, total: int, path: Path | None, *, show: bool) -> None:
        from tqdm import tqdm

        self._show = show
        self._bar: Any = tqdm(total=total, unit="it", disable=None if show else True, dynamic_ncols=True)
        self._file = None
        if show and path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", encoding="utf-8")
        self.say(HEADER)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        if self._show:
            self._bar.write(line)

    def iteration(self, step: Step, *, text_only_loss: float) -> None:
        """Show one iteration of the vision-language model."""
        self.say(
            f"{step.iteration:>9}  {step.loss:>6.3f}  {text_only_loss:>9.3f}  {step.planned_us / 1000:>5.0f} ms  "
            f"{step.measured_us / 1000:>5.0f} ms  {step.bubble_share:>6.1%}  "
            f"{'fallback' if step.fallback else 'plan':<8}  {step.waited_us / 1000:.1f} ms"
        )
        self._bar.set_postfix_str(f"loss {step.loss:.3f}, text only {text_only_loss:.3f}", refresh=False)
        self._bar.update()

    def record(self, **fields: object) -> None:
        """Add a line to the file."""
        if self._file is not None:
            self._file.write(json.dumps(fields) + "\n")
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
        if self._file is not None:
            self._file.close()
