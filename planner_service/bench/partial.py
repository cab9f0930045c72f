"""Rows as they come, so that a run that is cut short can go on: JSON lines, the first of which says what is run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from planner_service.bench.case import Row


class Partial:
    """Finished cases of a run.

    Parameters
    ----------
    path
        Of the file; made where there is none. One of another run is begun anew.
    run
        What is run: the file of a run like this is gone on with.
    """

    def __init__(self, path: Path, run: Mapping[str, Any]) -> None:
        self.path = path
        self.finished: dict[str, tuple[float, list[Row]]] = {}
        head = json.dumps({"run": run}, sort_keys=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if not lines or lines[0] != head:
            path.write_text(head + "\n", encoding="utf-8")
            return
        whole = [lines[0]]
        for line in lines[1:]:
            try:
                value = json.loads(line)
            except ValueError:  # the line that was being written when the run was cut short
                continue
            self.finished[value["case"]] = value["seconds"], value["rows"]
            whole.append(line)
        path.write_text("\n".join(whole) + "\n", encoding="utf-8")

    def add(self, case: str, seconds: float, rows: list[Row]) -> None:
        """Keep the rows of a case."""
        self.finished[case] = seconds, rows
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"case": case, "seconds": round(seconds, 2), "rows": rows}) + "\n")

    def remove(self) -> None:
        """Remove the file: all is in the result."""
        self.path.unlink(missing_ok=True)
