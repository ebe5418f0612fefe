"""pyproject.toml says who and what, setup.cfg how setuptools packs it; no key is in both."""

from __future__ import annotations

import ast
import configparser
import tomllib

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
