"""What docs/spark.md shows is what happens, and it names every option with its default."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'nsqsmart[spark]'")

from nsqsmart.spark.options import ReadOptions, WriteOptions, names
from nsqsmart.spark.schema import spark_schema
from nsqsmart.spark.sink.publishing import COLUMNS
from tests.helpers import ROOT
from tests.rooms.spark.submitted import java_or_skip

PAGE = (ROOT / "docs" / "spark.md").read_text()
NAME = re.compile(r"`(\w+)`")


def section(title: str) -> str:
    """The text behind a heading, up to the next one."""
    return re.split(r"^#+ ", PAGE.split(f"{title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def options_of(title: str) -> dict[str, str]:
    """The options of a table, and what it says of their defaults."""
    found: dict[str, str] = {}
    for line in section(title).splitlines():
        if not line.startswith("| `"):
            continue
        _, named, default, *_ = line.split("|")
        options = NAME.findall(named)
        defaults = default.strip().split(", ")
        if len(defaults) == 1:
            defaults *= len(options)
        found |= dict(zip(options, defaults, strict=True))
    return found


@pytest.mark.parametrize(
    ("title", "kind"), [("### Reading", ReadOptions), ("### Writing", WriteOptions)]
)
def test_every_option_is_described(title: str, kind: type[Any]) -> None:
    described = options_of(title)
    assert set(described) == set(names(kind))
    for name, field in names(kind).items():
        if field.default is MISSING or field.default is None:
            continue
        shown = described[name].strip("`")
        default = field.default
        if name.endswith("Ms"):
            default = round(default * 1000)
        if name == "maxTriggerDelay":
            default = f"{round(default / 60)}m"
        assert shown == str(default).lower(), name


def test_every_column_is_described() -> None:
    reading = set(NAME.findall(section("### Columns")))
    assert {
        part.split()[0] for part in re.split(r", (?!STRING)", spark_schema(headers=True))
    } <= reading
    assert set(COLUMNS) <= set(NAME.findall(section("## From rows to messages")))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_program_prints_what_the_page_says(tmp_path: Path) -> None:
    java_or_skip()
    blocks = re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)
    printed = "".join(re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL))
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert run.stdout == printed, run.stderr
