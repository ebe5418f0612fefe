"""What may start threads, take locks, dial and read the wall clock: the inventory.

ruff bans the same names, but its exemptions are by file, for all of them at once; these are exact.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.helpers import PACKAGE

ALLOWED = {
    "threading.Thread": ("net/threads.py", "embedded/", "testing/proxy.py"),
    "threading.Timer": (),
    "threading.RLock": (),
    # The demo plays an application: its publishing threads are the user's part.
    "concurrent.futures.ThreadPoolExecutor": ("cli/demo/story.py",),
    "socket.create_connection": ("net/sockets.py",),
    "time.time": (),
    "urllib.request": (),
}


def uses(source: str) -> Iterator[str]:
    """The dotted names *source* uses, with ``from`` imports and aliases resolved."""
    tree = ast.parse(source)
    full: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            full |= {name.asname: name.name for name in node.names if name.asname}
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
            full |= names
            yield from names.values()
    # To say that a thing is a thread starts none.
    said = [
        node.annotation if isinstance(node, ast.arg | ast.AnnAssign) else node.returns
        for node in ast.walk(tree)
        if isinstance(node, ast.arg | ast.AnnAssign | ast.FunctionDef)
    ]
    annotations = {each for top in said if top is not None for each in ast.walk(top)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node not in annotations:
            head, _, tail = ast.unparse(node).partition(".")
            yield f"{full.get(head, head)}.{tail}"


def banned(source: str, where: str) -> set[str]:
    """What *source* uses and the file *where* may not."""
    return {name for name in uses(source) if not where.startswith(ALLOWED.get(name, ("",)))}


def test_only_the_inventory_is_used() -> None:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        where = str(path.relative_to(PACKAGE))
        if names := banned(path.read_text(), where):
            found[where] = names
    assert found == {}


@pytest.mark.parametrize(
    ("source", "where", "names"),
    [
        (
            "import threading\nthreading.Thread(target=f)",
            "client/consuming/consumer.py",
            {"Thread"},
        ),
        ("import threading as t\nt.Thread(target=f)", "client/consuming/consumer.py", {"Thread"}),
        ("from threading import Thread", "client/consuming/consumer.py", {"Thread"}),
        ("import threading\nthreading.Thread(target=f)", "net/threads.py", set()),
        ("import threading\nthreading.Thread(target=f)", "embedded/nsqd.py", set()),
        ("import threading\nthreading.RLock()", "net/threads.py", {"RLock"}),
        ("import threading\nclass T(threading.Thread): ...", "net/pool.py", {"Thread"}),
        ("import threading\nx: threading.Thread | None", "net/ticker.py", set()),
        ("import threading\ndef f(t: threading.Thread) -> None: ...", "net/ticker.py", set()),
        ("import threading\nx: object = threading.Thread()", "net/ticker.py", {"Thread"}),
        (
            "from concurrent.futures import ThreadPoolExecutor",
            "client/consuming/runtime.py",
            {"ThreadPoolExecutor"},
        ),
        ("import time\ntime.time()", "embedded/nsqd.py", {"time"}),
        ("import time\ntime.time_ns()", "embedded/nsqd.py", set()),
        ("import socket\nsocket.create_connection(a)", "net/sockets.py", set()),
        ("import socket\nsocket.create_connection(a)", "net/pool.py", {"create_connection"}),
    ],
)
def test_a_use_outside_the_inventory_is_found(source: str, where: str, names: set[str]) -> None:
    assert {name.rpartition(".")[2] for name in banned(source, where)} == names
