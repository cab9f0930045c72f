"""Shows that what the pages point at is there: files, headings, routines of make, modules."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "." and path.name != "runs"]
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))])
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
PATH = re.compile(r"(?<![\w./~$}-])(?:[\w.-]+/)+[\w-]+\.(?:py|sh|md|toml|ya?ml|json|proto|lua|sbatch|conf|service)\b")
SCHEME = re.compile(r"[a-z]+:")
MADE_BY_A_RUN = "deploy/compose/secrets"
OTHER_PROGRAMS = {"torch", "venv", "pip", "http"}


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """Return all anchors of a page, numbered where a heading comes again."""
    seen: dict[str, int] = {}
    found = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        name = slug(heading)
        found.add(f"{name}-{seen[name]}" if name in seen else name)
        seen[name] = seen.get(name, -1) + 1
    return found


def broken(page: Path) -> Iterator[str]:
    """Yield each link of a page that leads nowhere."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        if SCHEME.match(link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and anchor not in anchors(target):
            yield f"{link}: no such heading"


def by_page(page: Path) -> str:
    """Return what a test of a page is called."""
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=by_page)
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=by_page)
def test_paths_that_are_named_exist(page: Path) -> None:
    named = {match for match in PATH.findall(page.read_text(encoding="utf-8")) if ROOT / match.split("/")[0] in FOLDERS}
    here = {path for path in named if not path.startswith(MADE_BY_A_RUN)}

    assert [path for path in sorted(here) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=by_page)
def test_routines_and_modules_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    code = "\n".join(FENCE.findall(text) + CODE.findall(FENCE.sub("", text)))
    routines = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

    assert set(re.findall(r"(?:^|`)make (?:-k )?([a-z-]+)", code, re.MULTILINE)) <= routines
    modules = set(re.findall(r"python -m ([\w.]+)", code))
    own = {name for name in modules if name.split(".")[0] not in OTHER_PROGRAMS}
    assert [name for name in sorted(own) if name != "benchmarks.NAME" and importlib.util.find_spec(name) is None] == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`\n\n[a](#one-two) [b](#two) [c](gone.md) ![d](gone.png) [e](https://example.com/x#y)\n")

    assert list(broken(page)) == ["#two: no such heading", "gone.md: no such file", "gone.png: no such file"]
