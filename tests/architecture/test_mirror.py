"""Every module of wire and policy is covered, line and branch, by its own test file alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.helpers import PACKAGE, ROOT

MODULES = [
    path.relative_to(PACKAGE)
    for floor in ("wire", "policy")
    for path in sorted((PACKAGE / floor).rglob("*.py"))
    if path.name != "__init__.py"
]


def own_test(module: Path) -> Path:
    """The test file of *module*: wire/frames.py has tests/unit/wire/test_frames.py."""
    return ROOT / "tests" / "unit" / module.parent / f"test_{module.name}"


def missed(module: Path, folder: Path) -> str:
    """What the module's own test file leaves out, or ``""``."""
    data = folder / str(module).replace("/", ".")
    coverage = [sys.executable, "-m", "coverage"]
    options = ["-q", "-p", "no:cacheprovider", "--hypothesis-profile=mirror"]
    pytest_run = ["-m", "pytest", *options, str(own_test(module))]
    commands = [
        ["run", "--branch", *pytest_run],
        ["json", "-q", f"--include={PACKAGE / module}", "-o", f"{data}.json"],
    ]
    for command in commands:
        run = [*coverage, command[0], f"--data-file={data}", *command[1:]]
        result = subprocess.run(run, cwd=ROOT, capture_output=True, text=True)
        if result.returncode:
            return result.stdout + result.stderr
    (report,) = json.loads(Path(f"{data}.json").read_text())["files"].values()
    lines, branches = report["missing_lines"], report["missing_branches"]
    return f"lines {lines}, branches {branches}" if lines or branches else ""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, Future[str]]]:
    """The answer for each module, two being worked out at a time."""
    folder = tmp_path_factory.mktemp("coverage")
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield {
            each: pool.submit(missed, each, folder) for each in MODULES if own_test(each).exists()
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_module_is_covered_by_its_own_tests(
    module: Path, results: dict[Path, Future[str]]
) -> None:
    assert own_test(module).exists(), f"{own_test(module).relative_to(ROOT)} is missing"
    assert results[module].result() == ""
