"""The front door: every name in it exists, is documented, and costs nothing that is not needed."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import nsqsmart

HEAVY = (
    "requests",
    "urllib3",
    "pyspark",
    "pyarrow",
    "rich",
    "django",
    "flask",
    "nsqsmart.embedded",
)


@pytest.mark.parametrize("name", nsqsmart.__all__)
def test_every_export_is_there_and_documented(name: str) -> None:
    value = getattr(nsqsmart, name)
    if callable(value) or inspect.ismodule(value):
        assert inspect.getdoc(value), f"{name} has no docstring"


def test_no_name_is_exported_twice() -> None:
    assert len(set(nsqsmart.__all__)) == len(nsqsmart.__all__)


def test_a_star_import_gives_what_is_promised() -> None:
    namespace: dict[str, object] = {}
    exec("from nsqsmart import *", namespace)
    assert set(nsqsmart.__all__) <= set(namespace)


def test_importing_the_front_door_loads_nothing_heavy() -> None:
    code = f"import sys, nsqsmart; print([name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr
