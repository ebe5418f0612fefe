"""The import contracts of pyproject.toml hold, and each catches what it is there to catch."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers import PACKAGE, ROOT

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]
# Contracts name rooms that a checkout may not have yet; in the copy they are empty.
NAMED = (
    *("cli", "client", "config", "contrib", "contrib/django", "contrib/flask", "embedded"),
    *("examples", "net", "policy", "spark", "testing", "wire"),
)
NAMED_MODULES = ("embedded/broker", "__main__")


class Violation(NamedTuple):
    """One import that one contract must catch: *module* gets *line*."""

    contract: str
    module: str
    line: str


VIOLATIONS = [
    Violation("floors", "errors", "import nsqsmart.names"),
    Violation("floors", "names", "import nsqsmart.config"),
    Violation("floors", "config", "import nsqsmart.wire"),
    Violation("floors", "wire", "import nsqsmart.policy"),
    Violation("floors", "policy", "import nsqsmart.net"),
    Violation("floors", "net", "import nsqsmart.client"),
    Violation("floors", "tracing", "import nsqsmart.net"),
    Violation("floors", "net", "import nsqsmart.tracing"),
    Violation("floors", "client", "import nsqsmart.cli"),
    Violation("floors", "client", "import nsqsmart.embedded"),
    Violation("sans-io", "wire", "import socket"),
    Violation("sans-io", "wire", "from time import monotonic"),
    Violation("sans-io", "policy", "import threading"),
    Violation("sans-io", "policy", "import logging"),
    Violation("sans-io", "names", "import urllib.parse"),
    Violation("sans-io", "config", "import ssl"),
    Violation("sans-io", "errors", "import queue"),
    Violation("sans-io", "embedded/broker", "import time"),
    Violation("client-over-net", "client", "import socket"),
    Violation("client-over-net", "client/producer", "import requests"),
    Violation("embedded-floors", "embedded/broker", "import nsqsmart.embedded.cluster"),
    Violation("embedded-floors", "embedded/nsqd", "import nsqsmart.embedded.nsqlookupd.server"),
    Violation("embedded-at-wire", "embedded", "import nsqsmart.net"),
    Violation("embedded-at-wire", "embedded", "import nsqsmart.policy"),
    Violation("embedded-at-wire", "embedded", "import nsqsmart.tracing"),
    Violation("front-door", "embedded", "import nsqsmart"),
    Violation("front-door", "embedded/broker", "from nsqsmart import Producer"),
    Violation("front-door", "client/producer", "from nsqsmart import Message"),
    Violation("front-door", "tracing", "from nsqsmart import Message"),
    Violation("room-embedded", "__init__", "import nsqsmart.embedded"),
    Violation("room-embedded", "net", "import nsqsmart.embedded.broker"),
    Violation("room-cli", "__init__", "import nsqsmart.cli"),
    Violation("room-cli", "embedded", "import nsqsmart.cli"),
    Violation("rooms-front-door", "cli", "import nsqsmart.client.producer.producer"),
    Violation("rooms-front-door", "cli", "import nsqsmart.wire"),
    Violation("rooms-front-door", "testing", "import nsqsmart.client"),
    Violation("rooms-front-door", "examples", "import nsqsmart.client"),
    Violation("room-examples", "testing", "import nsqsmart.examples"),
    Violation("room-spark", "contrib/django", "import nsqsmart.spark"),
    Violation("room-testing", "spark", "import nsqsmart.testing"),
    Violation("rooms-contrib", "contrib/django", "import nsqsmart.contrib.flask"),
    Violation("client-rooms", "client/producer", "import nsqsmart.client.consuming.consumer"),
    Violation("client-rooms", "client/spooling", "import nsqsmart.client.pipelining.pending"),
    Violation("client-rooms", "client/shared", "import nsqsmart.client.publishing.call"),
    Violation("cli-rooms", "cli/common", "import nsqsmart.cli.commands.pub"),
    Violation("cli-rooms", "cli/files", "import nsqsmart.cli.demo.story"),
    Violation("spark-rooms", "spark/sink", "import nsqsmart.spark.source.survey"),
    Violation("spark-rooms", "spark/spool", "import nsqsmart.spark.source.filling"),
    Violation("spark-rooms", "spark/report", "import nsqsmart.spark.jobs.runtime"),
    Violation("acyclic", "embedded/broker", "import nsqsmart.embedded.a_server"),
    Violation("acyclic", "wire/one", "import nsqsmart.wire.two"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, with whatever the contracts name and is not there yet."""
    root = tmp_path_factory.mktemp("floors")
    shutil.copy(ROOT / "pyproject.toml", root)
    ignored = shutil.ignore_patterns("__pycache__")
    package = Path(shutil.copytree(PACKAGE, root / "nsqsmart", ignore=ignored))
    for name in ("", *NAMED):
        folder = package / name
        if not folder.with_suffix(".py").exists():
            folder.mkdir(exist_ok=True)
            (folder / "__init__.py").touch()
    for name in NAMED_MODULES:
        if not (package / name).is_dir():
            (package / f"{name}.py").touch()
    # The halves of two cycles; a violation adds the other halves.
    (package / "wire" / "one.py").touch()
    (package / "wire" / "two.py").write_text("import nsqsmart.wire.one\n")
    (package / "embedded" / "a_server.py").write_text("import nsqsmart.embedded.broker\n")
    return root


def lint(root: Path, contract: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run import-linter in *root* for one contract, or for all."""
    program = "from importlinter.cli import lint_imports_command as run; run()"
    limit = ["--contract", contract] if contract else []
    return subprocess.run(
        [sys.executable, "-c", program, "--no-cache", "--no-logo", *limit],
        cwd=root,
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )


def test_the_contracts_hold(whole: Path) -> None:
    result = lint(whole)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{len(CONTRACTS)} kept, 0 broken" in result.stdout


def test_every_contract_is_tried() -> None:
    assert {contract["id"] for contract in CONTRACTS} == {each.contract for each in VIOLATIONS}


def plant(package: Path, violation: Violation) -> None:
    """Write the forbidden import into the copy at *package*."""
    module = package / violation.module
    path = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    before = path.read_text() if path.exists() else ""
    path.write_text(f"{before}\n{violation.line}\n")


def is_told(violation: Violation, output: str) -> bool:
    """Say whether *output* tells of the forbidden import."""
    importer = f"nsqsmart.{violation.module}".removesuffix(".__init__").replace("/", ".")
    if violation.contract == "acyclic":  # which names the folder, and either half of the cycle
        return f"No cycles are allowed in {importer.rpartition('.')[0]}." in output
    imported = violation.line.split()[1]
    if not imported.startswith("nsqsmart"):  # packages from outside are named whole
        imported = imported.partition(".")[0]
    paragraphs = (" ".join(each.split()) for each in output.split("\n\n"))
    ends = re.compile(rf"\b{re.escape(importer)}\b.*\b{re.escape(imported)}\b")
    return any(ends.search(each) for each in paragraphs)


@pytest.mark.parametrize("contract", [contract["id"] for contract in CONTRACTS])
def test_violations_are_caught(whole: Path, contract: str, tmp_path: Path) -> None:
    mine = [each for each in VIOLATIONS if each.contract == contract]
    root = Path(shutil.copytree(whole, tmp_path / "copy"))
    for each in mine:
        plant(root / "nsqsmart", each)
    result = lint(root, contract)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "0 kept, 1 broken" in result.stdout, result.stdout + result.stderr
    broken = result.stdout.partition("Broken contracts")[2]
    assert [each for each in mine if not is_told(each, broken)] == [], result.stdout


def test_a_module_without_a_floor_is_caught(whole: Path, tmp_path: Path) -> None:
    # By itself: import-linter then names the module and looks at no import.
    root = Path(shutil.copytree(whole, tmp_path / "copy"))
    (root / "nsqsmart" / "attic.py").touch()
    result = lint(root, "floors")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "nsqsmart.attic" in result.stdout + result.stderr


def test_config_uses_nothing_of_urllib_but_parse() -> None:
    # import-linter sees packages of the standard library whole, so its exception is too wide.
    config = PACKAGE / "config"
    files = list(config.glob("**/*.py")) if config.is_dir() else [config.with_suffix(".py")]
    lines = [line for file in files for line in file.read_text().splitlines() if "urllib" in line]
    assert [line for line in lines if not line.startswith("from urllib.parse import ")] == []
