"""No page shows a program that nothing runs: every kind of block on every page has its test."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import ROOT

PAGES = {
    path.name: path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
}
FENCE = re.compile(r"^( *)```+([^\n`]*)\n(.*?)^ *```+$", re.MULTILINE | re.DOTALL)
SHOWN_ONLY = {"text"}
"""What a block above it prints."""

RUN_BY = {
    ("README.md", ""): "tests/test_readme.py",
    ("command-line.md", "console"): "tests/rooms/cli/test_docs.py",
    ("cron.md", "console"): "tests/rooms/cli/test_cron_docs.py",
    ("cron.md", "ini"): "tests/rooms/cli/test_cron_docs.py",
    ("operate.md", "console"): "tests/rooms/cli/test_cron_docs.py",
    ("django.md", "py"): "tests/rooms/contrib/django/test_docs.py",
    ("django.md", "console"): "tests/rooms/contrib/django/test_docs.py",
    ("flask.md", "py"): "tests/rooms/contrib/flask/test_docs.py",
    ("flask.md", "console"): "tests/rooms/contrib/flask/test_docs.py",
    ("migrating.md", "py"): "tests/test_migrating.py",
    ("operate.md", "yaml"): "tests/rooms/contrib/test_observe_docs.py",
    ("spark.md", "py"): "tests/rooms/spark/test_docs.py",
    ("spark.md", "console"): "tests/test_docs_blocks.py",
    ("testing.md", "sh"): "tests/test_docs_blocks.py",
}
"""Which test runs or parses every block of a kind on a page. Those of ``python`` run everywhere."""


def blocks(page: str) -> list[tuple[str, str]]:
    """The blocks of *page*: what they are said to be, and what is in them."""
    found = []
    for indent, kind, content in FENCE.findall(PAGES[page]):
        assert not indent, f"{page}: an indented block is seen by no test: {content[:60]!r}"
        if not kind.startswith("{"):  # a directive of Sphinx
            found.append((kind.strip(), content))
    return found


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_block_is_run_or_parsed(page):
    for kind, content in blocks(page):
        if kind in {"python", *SHOWN_ONLY}:
            continue
        assert (page, kind) in RUN_BY, f"nothing runs this {kind or 'nameless'} block: {content}"
        runner = ROOT / RUN_BY[page, kind]
        assert page in runner.read_text(), f"{runner} does not read {page}"


def test_python_is_run_on_every_page():
    from tests.test_readme import EXAMPLES

    shown = [content for page in PAGES for kind, content in blocks(page) if kind == "python"]
    assert sorted(shown) == sorted(code for code, _ in EXAMPLES)


@pytest.mark.parametrize("page", sorted(PAGES))
def test_what_is_said_to_be_printed_follows_a_program(page):
    previous = ""
    for kind, _ in blocks(page):
        assert kind != "text" or previous in {"python", "py", "console", "", "text"}
        previous = kind


def commands_of(page: str) -> list[list[str]]:
    """The words of every command in the console blocks of *page*."""
    text = "".join(content for kind, content in blocks(page) if kind == "console")
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line[2:]) for line in lines if line.startswith("$ ")]


def test_the_jobs_of_the_page_about_spark_take_their_flags():
    from nsqsmart.spark.jobs.parser import make_parser

    said = [words for words in commands_of("spark.md") if words[0] == "python"]
    taken = []
    for words in said:
        assert words[:3] == ["python", "-m", "nsqsmart.spark"]
        taken.append(make_parser().parse_args(words[3:]).job)
    assert taken == [words[3] for words in said]
    assert {"archive", "trace", "replay", "order-audit", "lag"} == set(taken)


def test_the_stand_ins_of_the_page_about_testing_are_found_by_their_names(tmp_path):
    first, _ = [content for kind, content in blocks("testing.md") if kind == "sh"]
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "python").symlink_to(sys.executable)
    make = tools / "make"
    make.write_text("#!/bin/sh\nnsqd --version && nsqlookupd --version && echo made $1\n")
    make.chmod(0o755)
    done = subprocess.run(
        ["sh", "-ec", first],
        cwd=tmp_path,
        env={"PATH": f"{tools}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"nsqd v\S+ .*\nnsqlookupd v\S+ .*\nmade test\n", done.stdout)


def test_the_second_names_what_the_tests_read():
    _, second = [content for kind, content in blocks("testing.md") if kind == "sh"]
    programs = (ROOT / "tests" / "sites.py").read_text()
    markers = (ROOT / "pyproject.toml").read_text()
    for line in second.splitlines():
        variable, *words = shlex.split(line, comments=True)
        assert words == ["python", "-m", "pytest", "-m", "real"]
        assert f'"{variable.split("=")[0]}"' in programs
    assert '"real: ' in markers


def test_the_nets_have_no_hole(monkeypatch):
    monkeypatch.setitem(PAGES, "made-up.md", "```toml\na = 1\n```\n")
    with pytest.raises(AssertionError, match="nothing runs this toml block"):
        test_every_block_is_run_or_parsed("made-up.md")
    monkeypatch.setitem(PAGES, "made-up.md", "* a\n  ```py\n  b\n  ```\n")
    with pytest.raises(AssertionError, match="indented"):
        blocks("made-up.md")


def test_every_runner_is_there():
    for (page, _), runner in RUN_BY.items():
        assert page not in PAGES or Path(ROOT / runner).exists(), (page, runner)
