"""Files, functions, classes and constructors stay small enough to be read at a sitting."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import PACKAGE, ROOT

# A limit in lines makes fragments of a class; what a reader has to hold is what it offers.
FILE, FUNCTION, METHODS, PARAMETERS = 500, 61, 20, 8
# More modules than a reader takes in at once need rooms.
FOLDER = 16

# They offer more today, some of it to their neighbours alone. None may be added.
OVER = {"PullConnection", "Subscription"}

FILES = sorted(PACKAGE.rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


def too_big(source: str) -> Iterator[str]:
    """Say what in *source* is at or over its limit."""
    if (lines := source.count("\n")) >= FILE:
        yield f"the file has {lines} lines"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function) and (lines := code_lines(node)) >= FUNCTION:
            yield f"{node.name}, line {node.lineno}, has {lines} lines"
        if isinstance(node, ast.ClassDef):
            yield from class_too_big(node)


def class_too_big(node: ast.ClassDef) -> Iterator[str]:
    """Say whether *node* offers too much, or takes too much to make."""
    offered = {
        method.name
        for method in node.body
        if isinstance(method, Function) and not method.name.startswith("_")
    }
    if len(offered) > METHODS and node.name not in OVER:
        yield f"class {node.name} has {len(offered)} public methods"
    for method in node.body:
        if isinstance(method, Function) and method.name in {"__init__", "__new__"}:
            every = method.args
            count = len(every.posonlyargs + every.args + every.kwonlyargs) - 1
            if count >= PARAMETERS:
                yield f"{node.name}() takes {count} parameters: it should take a config"


def code_lines(node: Function) -> int:
    """The lines of *node* without decorators and docstring."""
    lines = (node.end_lineno or 0) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None:
        docstring = node.body[0]
        lines -= (docstring.end_lineno or 0) - docstring.lineno + 1
    return lines


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_too_big(path) -> None:
    assert list(too_big(path.read_text())) == []


def crowded(package: Path) -> list[str]:
    """Folders below *package* with too many modules, __init__ not counted."""
    folders = [package, *(each for each in package.rglob("*") if each.is_dir())]
    return [
        str(folder)
        for folder in folders
        if sum(path.stem != "__init__" for path in folder.glob("*.py")) > FOLDER
    ]


def test_no_folder_is_crowded(tmp_path) -> None:
    assert crowded(PACKAGE) == []
    room = tmp_path / "room"
    room.mkdir()
    for name in ("__init__", *(f"m{number}" for number in range(FOLDER))):
        (room / f"{name}.py").touch()
    assert crowded(tmp_path) == []
    (room / "one_more.py").touch()
    assert crowded(tmp_path) == [str(room)]


def unnamed(folder: Path) -> set[str]:
    """Modules and rooms in *folder* that the docstring of its __init__ does not name."""
    told = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    rooms = {path.parent.name for path in folder.glob("*/__init__.py")}
    return {name for name in modules | rooms if not re.search(rf"\b{name}\b", told)}


MAPPED = ("cli", "spark", "contrib/shared", "embedded/backends", "embedded/coordination")
MAPPED += ("embedded/nsqd", "embedded/nsqlookupd", "embedded/serving")
ROOMS = [
    path.parent
    for path in sorted(PACKAGE.rglob("__init__.py"))
    if path.parent.relative_to(PACKAGE).as_posix().startswith(MAPPED)
]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(PACKAGE)))
def test_a_room_names_what_is_in_it(room) -> None:
    assert unnamed(room) == set()


def test_what_a_room_does_not_name_is_found(tmp_path) -> None:
    (tmp_path / "__init__.py").write_text('"""There is a store, and the slots_of."""\n')
    for name in ("store", "slots"):
        (tmp_path / f"{name}.py").touch()
    assert unnamed(tmp_path) == {"slots"}


PADDING = "    x = 1\n"


@pytest.mark.parametrize(
    ("source", "findings"),
    [
        ("x = 1\n" * (FILE - 1), 0),
        ("x = 1\n" * FILE, 1),
        ("def f():\n" + PADDING * (FUNCTION - 2), 0),
        ("def f():\n" + PADDING * (FUNCTION - 1), 1),
        ('def f():\n    """One.\n\n    Two.\n    """\n' + PADDING * (FUNCTION - 2), 0),
        ("class C:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(METHODS)), 0),
        ("class C:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(METHODS + 1)), 1),
        ("class C:\n    def __init__(self, a, b, c, d, *, e, f, g): ...\n", 0),
        ("class C:\n    def __init__(self, a, b, c, d, *, e, f, g, h): ...\n", 1),
    ],
)
def test_the_limits_are_measured(source: str, findings: int) -> None:
    assert len(list(too_big(source))) == findings
