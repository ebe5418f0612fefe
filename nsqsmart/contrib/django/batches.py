"""All that one transaction publishes, as one callback of its commit."""

from __future__ import annotations

from functools import partial
from typing import Any

from nsqsmart.contrib.django.aliases import find_producer
from nsqsmart.contrib.django.signals import tally, tell
from nsqsmart.contrib.shared.delivering import Parcel, deliver
from nsqsmart.contrib.shared.letters import Letter


class Batch:
    """Letters that are sent when it is called; nothing that is an Exception comes out of it.

    *connection* is that of the transaction which calls it, None if there is none.
    """

    def __init__(self, letters: list[Letter], connection: Any = None) -> None:
        self.letters = letters
        self.transaction = None if connection is None else _transaction_of(connection)

    def __call__(self) -> None:
        """Send them, each alias with its producer, and account for every one."""
        letters, self.letters = self.letters, []
        groups: dict[str, list[Letter]] = {}
        for letter in letters:
            groups.setdefault(letter.alias, []).append(letter)
        deliver(
            Parcel(group, partial(find_producer, alias), tell, tally)
            for alias, group in groups.items()
        )


def find_batch(connection: Any) -> Batch | None:
    """The batch that a letter written now belongs to; None if a new one has to be registered.

    Django drops a callback when a savepoint is rolled back that it was registered in. So a letter
    may join a batch whose savepoints that still stand are the current ones; those which were
    released since can no more be rolled back alone. Batches that have become alike so are joined,
    or a loop with a savepoint for each row would have one for each row.
    """
    current = _savepoints(connection)
    mine = _transaction_of(connection)
    hooks = connection.run_on_commit
    own = [
        (number, hook[0] & current, hook[1])
        for number, hook in enumerate(hooks)
        if isinstance(hook[1], Batch) and hook[1].transaction == mine
    ]
    if len(own) > 1 and own[-1][1] == own[-2][1]:
        number, _, last = own.pop()
        own[-1][2].letters += last.letters
        del hooks[number]
    if own and own[-1][1] == current:
        return own[-1][2]
    return None


def _savepoints(connection: Any) -> set[str]:
    return {each for each in connection.savepoint_ids if each is not None}


def _transaction_of(connection: Any) -> object:
    """What tells one transaction from the next on *connection*.

    After a commit Django forgets its callbacks, so those that are there are of one transaction. In
    a TestCase nothing is committed: there a transaction of the application is a savepoint.
    """
    tests = sum(block._from_testcase for block in connection.atomic_blocks)  # noqa: SLF001
    if not tests:
        return None
    own = [each for each in connection.savepoint_ids[tests - 1 :] if each is not None]
    # Without one, the application would have no transaction, and publish each at once.
    return own[0] if own else object()
