"""Nothing that comes over the network, or out of a file, can become code."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.helpers import PACKAGE

MODULES = {"pickle", "marshal", "shelve", "cloudpickle", "dill"}
CALLS = {"eval", "exec", "compile", "__import__"}


def findings(source: str) -> Iterator[str]:
    """The modules and calls of *source* that make code, or any object, of data."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield from [node.func.id] if node.func.id in CALLS else []


def test_the_package_makes_no_code_of_data() -> None:
    found = {
        str(path.relative_to(PACKAGE)): names
        for path in PACKAGE.rglob("*.py")
        if (names := list(findings(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pickle", ["pickle"]),
        ("from pickle import loads", ["pickle"]),
        ("eval(text)", ["eval"]),
        ("import json", []),
        ("re.compile(text)", []),
    ],
)
def test_what_would_is_found(source: str, found: list[str]) -> None:
    assert list(findings(source)) == found
