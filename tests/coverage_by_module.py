"""Every module of wire and policy is covered, line and branch, by its own test file alone.

``python -m tests.coverage_by_module`` runs the unit tests of both floors once, under coverage,
with the test file as the context of what it runs. A step of .ci/run, for it takes a minute.
It prints what a module's own tests leave out, and exits with 1 if there is any.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

from tests.helpers import PACKAGE, ROOT

FLOORS = ("wire", "policy")


def modules(package: Path = PACKAGE) -> list[Path]:
    """The modules that must be covered, relative to *package*."""
    found = (path for floor in FLOORS for path in sorted((package / floor).rglob("*.py")))
    return [path.relative_to(package) for path in found if path.name != "__init__.py"]


def own_test(module: Path) -> Path:
    """The test file of *module*: wire/frames.py has tests/unit/wire/test_frames.py."""
    return Path("tests", "unit", module.parent, f"test_{module.name}")


class ContextByFile:
    """A pytest plugin: what a test runs is counted for the file that it stands in."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Switch to the context of *item*'s file, and back to that of imports."""
        self._measured.switch_context(str(item.path.relative_to(item.config.rootpath)))
        try:
            return (yield)
        finally:
            self._measured.switch_context("")


def measure(root: Path, measured: coverage.Coverage) -> int:
    """Run the tests of both floors in *root* under *measured*; pytest's exit code."""
    folders = [str(root / "tests" / "unit" / floor) for floor in FLOORS]
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-profile=coverage"]
    measured.start()
    try:
        return int(pytest.main([*options, *folders], plugins=[ContextByFile(measured)]))
    finally:
        measured.stop()


def left_out(root: Path, module: Path, measured: coverage.Coverage) -> str:
    """What the own test file of *module* leaves out, or ``""``."""
    test = own_test(module)
    if not (root / test).exists():
        return f"{test} is missing"
    # The context "" is what runs when a module is imported, by whichever test that was.
    contexts = ["^$", f"^{test}$"]
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        measured.json_report(
            morfs=[str(root / "nsqsmart" / module)], contexts=contexts, outfile=report.name
        )
        (found,) = json.loads(Path(report.name).read_text())["files"].values()
    lines, branches = found["missing_lines"], found["missing_branches"]
    return f"lines {lines}, branches {branches}" if lines or branches else ""


def main(root: Path = ROOT) -> int:
    """Measure, print what is left out, and return the exit code."""
    package = root / "nsqsmart"
    folders = [str(package / floor) for floor in FLOORS]
    with tempfile.TemporaryDirectory() as folder:
        measured = coverage.Coverage(
            data_file=str(Path(folder, "data")), branch=True, source=folders, config_file=False
        )
        if code := measure(root, measured):
            return code
        named = modules(package)
        gaps = {each: gap for each in named if (gap := left_out(root, each, measured))}
    for module, gap in gaps.items():
        print(f"nsqsmart/{module}: {gap}")
    print(f"{len(named) - len(gaps)} of {len(named)} modules are covered by their own tests.")
    return 1 if gaps else 0


if __name__ == "__main__":
    sys.exit(main())
