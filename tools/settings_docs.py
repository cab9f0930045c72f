"""Write docs/settings.md from the classes that read the settings; `make docs` calls it, `--check` only compares.

What stands there is what the code reads: names, defaults, allowed values and meaning come from the planner's
`Settings` and the agents' `VARIABLES`.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from planner_service.settings import PREFIX, Settings
from trainer_agent.settings import VARIABLES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
HEAD = """\
# Settings

`make docs` writes this page from the classes that read the settings; do not edit it.

All are variables of the environment. An argument of the program (`dip serve --listen ...`) goes before the variable,
the variable before the default; an empty variable is an unset one. A value that is not allowed ends the start with a
line that names the variable, what it held and what is allowed; a name that is none, and looks like one, is warned
about.
"""
PLANNER = """
## The planner (`dip serve`)

| variable | default | allowed | meaning |
| --- | --- | --- | --- |
"""
AGENT = """
## Trainers and the `dip jobs` and `dip status` commands

| variable | default | meaning |
| --- | --- | --- |
"""
BOUNDS = (("ge", "{} or more"), ("gt", "above {}"), ("le", "{} or less"), ("lt", "below {}"))


def page() -> str:
    """Return the page's text."""
    planner = "".join(_planner_row(name, field) for name, field in Settings.model_fields.items())
    agent = "".join(_row(f"`{each.name}`", each.default, each.meaning) for each in VARIABLES)
    return HEAD + PLANNER + planner + AGENT + agent


def _planner_row(name: str, field: FieldInfo) -> str:
    default = "unset" if field.default is None else f"`{_as_written(field.default)}`"
    return _row(f"`{PREFIX}{name.upper()}`", default, ", ".join(_allowed(field)), field.description or "")


def _row(*cells: str) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |\n"


def _as_written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _allowed(field: FieldInfo) -> Iterator[str]:
    """Describe a field's values, from its annotation and bounds."""
    annotation: Any = field.annotation
    if choices := getattr(annotation, "__args__", None) if "Literal" in str(annotation) else None:
        yield " or ".join(f"`{choice}`" for choice in choices)
    elif annotation is bool:
        yield "`true` or `false`"
    elif annotation is int:
        yield "a whole number"
    elif "Path" in str(annotation):
        yield "a path"
    else:
        yield "as it says"
    for bound in field.metadata:
        if pattern := getattr(bound, "pattern", None):
            yield f"`{pattern}`"
        for name, words in BOUNDS:
            if (limit := getattr(bound, name, None)) is not None:
                yield words.format(limit)


def main() -> int:
    """Write the page, or say whether it is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", nargs="?", type=Path, default=PAGE)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where the page is stale")
    arguments = parser.parse_args()
    text = page()
    if not arguments.check:
        arguments.page.write_text(text, encoding="utf-8")
        return 0
    if arguments.page.exists() and arguments.page.read_text(encoding="utf-8") == text:
        return 0
    print(f"{arguments.page} is not what the settings' classes say: run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
