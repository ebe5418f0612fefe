"""The front door: every name in it exists, is documented, and costs nothing that is not needed."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

import nsqsmart
from nsqsmart.spark.jobs.parser import _JOBS
from tests.helpers import PACKAGE, ROOT

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


KNOWN = {"Any", "Callable", "None", "Self"}


def returned() -> Iterator[tuple[str, str]]:
    """Every public call, and each name in what it says it returns."""
    for name in nsqsmart.__all__:
        value = getattr(nsqsmart, name)
        members = inspect.getmembers(value) if inspect.isclass(value) else [(name, value)]
        for member, call in members:
            if member.startswith("_") or not inspect.isfunction(call):
                continue
            if call.__module__.startswith("nsqsmart"):
                for found in re.findall(r"\b[A-Z]\w+", str(call.__annotations__.get("return"))):
                    yield f"{name}.{member}", found


def test_what_public_calls_return_is_imported_by_name() -> None:
    known = KNOWN | set(nsqsmart.__all__)
    assert {call: name for call, name in returned() if name not in known} == {}


def test_a_star_import_gives_what_is_promised() -> None:
    namespace: dict[str, object] = {}
    exec("from nsqsmart import *", namespace)
    assert set(nsqsmart.__all__) <= set(namespace)


def loaded_by(code: str, names: tuple[str, ...]) -> str:
    check = f"import sys; {code}; print([name for name in {names!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    return result.stdout.strip() or result.stderr


def test_everything_in_the_front_door_loads_nothing_heavy() -> None:
    assert loaded_by("from nsqsmart import *", HEAVY) == "[]"


def test_the_front_door_opens_only_what_is_asked_for() -> None:
    assert loaded_by("import nsqsmart", ("nsqsmart.client", "nsqsmart.errors", "ssl")) == "[]"
    assert (
        loaded_by("from nsqsmart import Producer", ("nsqsmart.client.consuming.consumer",)) == "[]"
    )


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'nsqsmart' has no attribute 'Publisher'"):
        _ = nsqsmart.Publisher
    assert dir(nsqsmart) == sorted(nsqsmart.__all__)


REFERENCE = (ROOT / "docs" / "reference.md").read_text()
STABLE = dict(
    re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", REFERENCE.partition("\n## Publish")[0], re.M)
)


def exported(module: str) -> set[str]:
    """What *module*, which may need what is not installed, says that it exports."""
    tree = ast.parse((PACKAGE / module / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError(module)


@pytest.mark.parametrize(
    "module", ["contrib/django", "contrib/flask", "contrib/opentelemetry", "embedded", "spark"]
)
def test_the_reference_names_what_an_integration_exports(module: str) -> None:
    (row,) = [
        said for what, said in STABLE.items() if f"`nsqsmart.{module.replace('/', '.')}`" in what
    ]
    assert set(re.findall(r"`(\w+)`", row.partition(";")[0])) == exported(module)


def test_the_reference_names_every_fixture() -> None:
    plugin = (PACKAGE / "testing" / "plugin.py").read_text()
    fixtures = set(re.findall(r"^@pytest.fixture.*\ndef (nsq_\w+)", plugin, re.M))
    (row,) = [said for what, said in STABLE.items() if "pytest plugin" in what]
    assert set(re.findall(r"`(nsq_\w+)`", row)) == fixtures


def test_the_reference_names_every_job_and_command_of_a_framework() -> None:
    commands = PACKAGE / "contrib" / "django" / "management" / "commands"
    named = {path.stem for path in commands.glob("nsq_*.py")}
    named |= set(_JOBS)
    assert {name for name in named if f"`{name}`" not in " ".join(STABLE.values())} == set()
