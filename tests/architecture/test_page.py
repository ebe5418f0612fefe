"""docs/architecture.md names files that are there, every lock, and what starts threads."""

from __future__ import annotations

import re

from tests.helpers import PACKAGE, ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
FILE = r"`((?:client|net|policy|wire|embedded)/[\w/]+\.py|tracing\.py)`"


def files(pattern: str) -> set[str]:
    """The files of the client and the network in which *pattern* is found, as the page has them."""
    paths = [
        PACKAGE / "tracing.py",
        *(PACKAGE / "client").rglob("*.py"),
        *(PACKAGE / "net").glob("*.py"),
    ]
    return {
        str(path.relative_to(PACKAGE)) for path in paths if re.search(pattern, path.read_text())
    }


def section(title: str) -> str:
    """What is under the heading *title*."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_file_is_there() -> None:
    named = set(re.findall(FILE, PAGE))
    assert {name for name in named if not (PACKAGE / name).exists()} == set()


def test_the_table_has_every_lock() -> None:
    rows = re.findall(rf"^\| {FILE} \|", section("Locks"), re.MULTILINE)
    queues = {"client/consuming/batch_workers.py"}  # one that is used as a turn
    assert set(rows) - queues == files(r"\bthreading\.(Lock|Condition|Semaphore|RLock)\(")


def test_the_table_has_all_that_starts_threads() -> None:
    rows = set(re.findall(FILE, section("Threads")))
    assert files(r"\bspawn\(") - {"net/threads.py"} <= rows


def test_a_publish_and_a_message_pass_at_most_eight_files() -> None:
    for title in ("One keyed publish", "One received message"):
        steps = re.findall(r"^(\d+)\. `([\w/]+\.py)`", section(title), re.MULTILINE)
        assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
        assert 6 <= len(steps) <= 8
