"""Every document that the code cites is in the repository, and every link leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import ROOT

FOLDERS = ("nsqsmart", "docs", "tests", "benchmarks")
FILES = sorted(
    path
    for path in (
        *ROOT.glob("*.md"),
        *(path for name in FOLDERS for path in (ROOT / name).rglob("*")),
    )
    if path.suffix in {".py", ".md", ".html", ".sh"}
    and path != Path(__file__)
    and "mutants" not in path.parts  # they break what they quote
)
PAGES = [path for path in FILES if path.suffix == ".md"]

CITED = re.compile(r"\b(protocol|decisions|architecture)#([a-z0-9_-]*[a-z0-9])")
PAGE = re.compile(r"\bdocs/([a-z-]+)\.md\b")
LINK = re.compile(r"\]\(([^)\s:]*?)(?:#([^)\s]+))?\)")
# Documents that never were in the repository, as they were cited before these pages.
ELSEWHERE = re.compile(
    r"\((?:protocol|cluster|reliability|performance|standin|clients|ecosystem) [0-9A-Z]"
    r"|\b(?:protocol|reliability|performance|ecosystem|Spark reference) [0-9]+\.[0-9]"
    r"|\b(?:performance|cluster|reliability|ecosystem|standin|clients|aesthetics)\.md\b"
    r"|\bDESIGN\b"
)


def anchors(page: str) -> set[str]:
    """What of *page* can be cited: headings as browsers name them, and numbers of decisions."""
    text = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    found = set()
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE):
        found.add(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-"))
        if number := re.match(r"(\d+)\. ", heading):
            found.add(number.group(1))
    return found


ANCHORS = {path: anchors(path.read_text()) for path in PAGES}


def dangling(path: Path, text: str) -> Iterator[str]:
    """The citations and links in *text*, of the file *path*, that lead nowhere."""
    for name, anchor in CITED.findall(text):
        if anchor not in ANCHORS.get(ROOT / "docs" / f"{name}.md", set()):
            yield f"{name}#{anchor}"
    yield from (name for name in PAGE.findall(text) if not (ROOT / f"docs/{name}.md").exists())
    yield from (found.group() for found in ELSEWHERE.finditer(text))
    if path.suffix != ".md":
        return
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    for target, anchor in LINK.findall(prose):
        page = (path.parent / target).resolve() if target else path
        if not page.exists() or (anchor and anchor not in ANCHORS.get(page, {anchor})):
            yield f"{target}#{anchor}"


def test_every_citation_leads_somewhere() -> None:
    found = {str(path.relative_to(ROOT)): list(dangling(path, path.read_text())) for path in FILES}
    assert {name: lost for name, lost in found.items() if lost} == {}


def test_a_decision_has_a_number_of_its_own() -> None:
    text = (ROOT / "docs" / "decisions.md").read_text()
    numbers = [int(number) for number in re.findall(r"^### (\d+)\. ", text, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("as in protocol#partition-token", []),
        ("(decisions#7)", []),
        ("(protocol#no-such-thing).", ["protocol#no-such-thing"]),
        ("(decisions#999)", ["decisions#999"]),
        ("(protocol 2.10)", ["(protocol 2"]),
        ("by cluster 5", []),
        ("(cluster 5.1)", ["(cluster 5"]),
        ("the table of DESIGN", ["DESIGN"]),
        ("a line of performance.md", ["performance.md"]),
        ("see docs/nowhere.md", ["nowhere"]),
        ("[a](docs/spark.md) and [b](nowhere.md)", ["nowhere.md#"]),
        ("[a](docs/protocol.md#lost-follower) and [b](docs/protocol.md#x)", ["docs/protocol.md#x"]),
    ],
)
def test_what_leads_nowhere_is_found(text: str, lost: list[str]) -> None:
    assert list(dangling(ROOT / "README.md", text)) == lost
