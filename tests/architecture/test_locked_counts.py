"""A read, a change and a write need a lock, or one thread alone: the inventory.

An interpreter without its lock (free-threaded Python) loses such changes otherwise.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.helpers import PACKAGE

# By file and target: who alone makes the change.
ALONE = {
    # The thread whose counts they are.
    "client/consuming/batch_workers.py": {"counts.*"},
    "client/consuming/workers.py": {"counts.*"},
    # The caller of these has the lock.
    "client/messages/checked_out.py": {"self._counts[message._read_batch.source]"},
    "client/pipelining/in_flight.py": {"self._waiters"},
    "client/shared/directory.py": {"self.failures", "self.led"},
    "net/write_buffer.py": {"self._settled"},
    "net/pipeline.py": {"self._waiting"},
    # The one call that it belongs to.
    "client/publishing/call.py": {"self._placement.avoid"},
    "client/publishing/placement.py": {"self._unknown_in"},
    "client/spooling/sending.py": {"self.refused", "self.sent"},
    "net/http/session.py": {"self.unread"},
    # Who has borrowed the connection.
    "client/publishing/shared_state.py": {"connection.spoiled"},
    "net/pool.py": {"connection.loans"},
    # The caller: a PullSubscription belongs to one thread at a time.
    "client/pulling/connection.py": {"self._waiting", "self._timed_out", "self._unacked.*"},
    "client/pulling/unacked.py": {"self.*"},
    # The reader of the partition, or who has its one message in hand.
    "client/subscribing/ordered_delivery.py": {"self._failures"},
    "client/subscribing/start_position.py": {"self._refused[message_id]", "memory.failed_checks"},
    "net/reader.py": {"self.received"},
    # A lost failure is no harm.
    "net/http/lookup.py": {"self.failures"},
}


def changes(node: ast.AST, *, locked: bool = False) -> Iterator[str]:
    """The targets of ``+=`` and the like outside a ``with`` of a lock; not those of local names."""
    for child in ast.iter_child_nodes(node):
        inside = locked and not isinstance(child, ast.FunctionDef | ast.Lambda)
        if isinstance(child, ast.With):
            held = (ast.unparse(each.context_expr) for each in child.items)
            inside = inside or any(
                each.endswith(("_lock", "_changed", "_counting")) for each in held
            )
        if (
            isinstance(child, ast.AugAssign)
            and not isinstance(child.target, ast.Name)
            and not inside
        ):
            yield ast.unparse(child.target)
        yield from changes(child, locked=inside)


def test_what_is_read_changed_and_written_has_a_lock_or_one_thread() -> None:
    found: dict[str, set[str]] = {}
    for folder in ("client", "net"):
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            where = str(path.relative_to(PACKAGE))
            allowed = ALONE.get(where, set())
            for target in changes(ast.parse(path.read_text())):
                if (
                    not allowed & {target, f"{target.rpartition('.')[0]}.*"}
                    and "self.*" not in allowed
                ):
                    found.setdefault(where, set()).add(target)
    assert found == {}, "take a lock, or say in ALONE which thread alone makes the change"


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        ("def f(self):\n    self.a += 1", ["self.a"]),
        ("def f(self):\n    with self._lock:\n        if x:\n            self.a += 1", []),
        ("def f(self):\n    with self._lock:\n        pass\n    self.a[0] -= 1", ["self.a[0]"]),
        ("with self._lock:\n    def f():\n        self.a += 1", ["self.a"]),
        ("with open('x') as f:\n    self.a |= 1", ["self.a"]),
        ("a += 1", []),
    ],
)
def test_a_change_without_a_lock_is_found(source: str, targets: list[str]) -> None:
    assert list(changes(ast.parse(source))) == targets
