"""tests/coverage_by_module.py tells of what a module's own tests leave out."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.coverage_by_module import modules, own_test
from tests.helpers import ROOT

BOTH_WAYS = "def answer(yes):\n    if yes:\n        return 1\n    return 0\n"
PYTEST_INI = '[tool.pytest.ini_options]\npythonpath = ["."]\n'
CONFTEST = "import hypothesis\nhypothesis.settings.register_profile('coverage')\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with the tool and both floors, in which policy has one covered module."""
    for folder in ("nsqsmart/wire", "nsqsmart/policy", "tests/unit/wire", "tests/unit/policy"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("__init__.py", "helpers.py", "coverage_by_module.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    (tmp_path / "pyproject.toml").write_text(PYTEST_INI)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    add(tmp_path, "policy", "calm", "X = 1\n", "import nsqsmart.policy.calm\n\ndef test(): pass\n")
    return tmp_path


def add(root: Path, floor: str, name: str, source: str, test: str = "") -> None:
    """Write a module, and its test file if there is one."""
    (root / "nsqsmart" / floor / f"{name}.py").write_text(source)
    if test:
        (root / "tests" / "unit" / floor / f"test_{name}.py").write_text(test)


def calling(*calls: str) -> str:
    """A test file that makes *calls* of wire.one and wire.two."""
    lines = "".join(f"    {call}\n" for call in calls)
    return f"from nsqsmart.wire import one, two\n\ndef test_it():\n{lines}"


def measure(root: Path) -> subprocess.CompletedProcess[str]:
    """Run the tool in *root*, with the plugins it needs and no plugin of this package."""
    return subprocess.run(
        [sys.executable, "-m", "tests.coverage_by_module"],
        cwd=root,
        env={
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "xdist.plugin,_hypothesis_pytestplugin",
        },
        capture_output=True,
        text=True,
    )


def test_what_other_tests_cover_does_not_count(root: Path) -> None:
    add(root, "wire", "one", BOTH_WAYS, calling("one.answer(True)", "one.answer(False)"))
    add(root, "wire", "two", BOTH_WAYS, calling("two.answer(True)", "one.answer(True)"))
    (root / "tests/unit/wire/test_other.py").write_text(calling("two.answer(False)"))
    add(root, "wire", "three", "X = 1\n")
    found = measure(root)
    assert found.returncode == 1, found.stdout + found.stderr
    assert [line for line in found.stdout.splitlines() if line.startswith("nsqsmart")] == [
        "nsqsmart/wire/three.py: tests/unit/wire/test_three.py is missing",
        "nsqsmart/wire/two.py: lines [4], branches [[2, 4]]",
    ]
    assert "2 of 4 modules" in found.stdout


def test_a_failing_test_is_no_measurement(root: Path) -> None:
    add(root, "wire", "one", "X = 1\n", "def test_it():\n    raise ValueError\n")
    found = measure(root)
    assert found.returncode == 1
    assert "are covered" not in found.stdout


def test_the_modules_of_this_package_are_found_with_their_tests() -> None:
    assert [each for each in modules() if not (ROOT / own_test(each)).exists()] == []
    assert len(modules()) > 20
