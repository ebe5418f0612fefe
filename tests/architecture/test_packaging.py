"""pyproject.toml says who and what, setup.cfg how setuptools packs it; no key is in both.

What else lies beside them says the same as they do.
"""

from __future__ import annotations

import ast
import configparser
import re
import tomllib

import pytest
import yaml

import nsqsmart
from tests.helpers import PACKAGE, ROOT

# setup.cfg's words for keys of [project]. A field in both is a warning, and setup.cfg loses.
SAME = {
    "python_requires": "requires-python",
    "install_requires": "dependencies",
    "long_description": "readme",
    "author": "authors",
    "maintainer": "maintainers",
    "url": "urls",
    "project_urls": "urls",
    "license_file": "license-files",
    "license_files": "license-files",
    "extras_require": "optional-dependencies",
    "console_scripts": "scripts",
}


def cfg() -> configparser.ConfigParser:
    """setup.cfg, read."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def project() -> dict[str, object]:
    """The [project] table of pyproject.toml."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert isinstance(table, dict)
    return table


def test_no_key_is_in_both_files() -> None:
    parser = cfg()
    keys = {key for section in parser.sections() for key in parser[section]}
    keys |= {section.removeprefix("options.") for section in parser.sections()}
    assert {SAME.get(key, key) for key in keys} & (set(project()) - {"dynamic"}) == set()


def test_setup_cfg_sets_what_pyproject_leaves_to_it() -> None:
    assert project()["dynamic"] == ["version"]
    assert list(cfg()["metadata"]) == ["version"]


def test_setup_cfg_configures_no_tool() -> None:
    assert {section.partition(".")[0] for section in cfg().sections()} == {"metadata", "options"}


def test_the_version_is_read_without_importing_the_package() -> None:
    attribute = cfg()["metadata"]["version"].removeprefix("attr: ")
    assert attribute == "nsqsmart._version.__version__"
    # setuptools runs nothing where the value is a literal.
    tree = ast.parse((PACKAGE / "_version.py").read_text())
    values = [ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)]
    assert values == [nsqsmart.__version__]


def test_the_type_marker_is_packed() -> None:
    assert (PACKAGE / "py.typed").exists()
    assert "py.typed" in cfg()["options.package_data"]["nsqsmart"].split()


def test_every_supported_python_is_tested() -> None:
    classifiers = project()["classifiers"]
    assert isinstance(classifiers, list)
    supported = [each.rpartition(" ")[2] for each in classifiers if re.search(r":: 3\.\d+$", each)]
    assert f">={supported[0]}" == project()["requires-python"]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "check.yml").read_text())
    unit, whole = workflow["jobs"]["unit"], workflow["jobs"]["all"]
    assert unit["strategy"]["matrix"]["python"] == supported
    assert whole["strategy"]["matrix"]["os"] == ["ubuntu-latest", "macos-latest"]
    assert whole["steps"][-1]["run"] == ".ci/run"


def test_hooks_run_what_the_check_runs() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    check = (ROOT / ".ci" / "run").read_text()
    for hook in hooks:
        command = hook["entry"].replace(" --force-exclude", "")
        assert f".venv/bin/{command}" in check.replace("format --check .", "format --check")


def test_make_has_the_five_things() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", text, re.MULTILINE))
    assert targets == {"test", "check", "docs", "bench", "demo"}
    programs = re.findall(r"benchmarks/\w+\.py|\.ci/run", text)
    assert [name for name in programs if not (ROOT / name).exists()] == []


KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def misplaced(changelog: str) -> list[str]:
    """The lines of *changelog* that Keep a Changelog does not know."""
    wrong = []
    for line in changelog.splitlines():
        if line.startswith("## ") and not re.fullmatch(
            r"## \[(Unreleased|\d+\.\d+\.\d+\] - (\d{4}-\d\d-\d\d|unreleased))\]?", line
        ):
            wrong.append(line)
        if line.startswith("### ") and line[4:] not in KINDS:
            wrong.append(line)
        if line.startswith(" "):  # a change has one line
            wrong.append(line)
    return wrong


def test_the_changelog_is_kept() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert misplaced(text) == []
    first, second = re.findall(r"^## \[(.*?)\]", text, re.MULTILINE)[:2]
    assert (first, second) == ("Unreleased", nsqsmart.__version__.partition(".dev")[0])


@pytest.mark.parametrize("line", ["## 0.1.0", "## Unreleased", "### Why", "  and so on"])
def test_what_does_not_belong_there_is_found(line: str) -> None:
    assert misplaced(f"## [Unreleased]\n\n### Added\n\n* a\n{line}\n") == [line]
    assert misplaced("## [0.1.0] - 2026-12-01\n") == []
