"""What was published and what was consumed, and whether it is as promised.

::

    history = History()
    with nsqsmart.Consumer("orders", "billing", history.handler(), address=address):
        for number in range(1000):
            history.publish(producer, "orders", b"%d" % number, key="customer-7")
        history.wait(timeout=10)
    history.check()

No acknowledged message is lost, no message comes that was never sent, and messages of a key come in
the order in which they were sent. The first delivery of each counts for the order: a copy may come
late (a retry stored it twice, or the server delivered it again).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

from nsqsmart import Message, Producer, Receipt
from nsqsmart.errors import Outcome, PublishError

T = TypeVar("T", bound=Hashable)

_SHOWN = 5


class Inversion(NamedTuple):
    """*item* first came after *behind*, which was sent later with the same key."""

    key: Any
    item: Any
    behind: Any

    def __str__(self) -> str:
        return f"{self.key!r}: {self.item!r} after {self.behind!r}"


def inversions(deliveries: Iterable[tuple[Hashable, Any]]) -> list[Inversion]:
    """What is out of order in *deliveries*, as pairs of a key and a number that grows with each.

    Only the first delivery of each pair counts. Numbers may be anything that can be compared.
    """
    found: list[Inversion] = []
    newest: dict[Hashable, Any] = {}
    for key, number in dict.fromkeys(deliveries):
        before = newest.setdefault(key, number)
        if number < before:
            found.append(Inversion(key, number, before))
        else:
            newest[key] = number
    return found


class History(Generic[T]):
    """Notes of any number of threads; messages are told apart by anything that can be hashed.

    :meth:`publish` and :meth:`handler` take the body for that: make each body another.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all below
        self._come = threading.Condition(self._lock)
        self._sent: dict[T, tuple[Hashable, int]] = {}
        self._acknowledged: set[T] = set()
        self._refused: set[T] = set()
        self._consumed: Counter[T] = Counter()

    # ---------------------------------------------------------------------------- what happens

    def sent(self, item: T, key: Hashable = None) -> None:
        """*item* is about to be published; with a *key*, after all earlier ones of that key."""
        with self._lock:
            self._sent.setdefault(item, (key, len(self._sent)))
            self._refused.discard(item)

    def acknowledged(self, item: T, key: Hashable = None) -> None:
        """The server has stored *item*."""
        self.sent(item, key)
        with self._lock:
            self._acknowledged.add(item)

    def refused(self, item: T) -> None:
        """The server has not stored *item*. Do not call it where the outcome is unknown."""
        with self._lock:
            self._refused.add(item)

    def consumed(self, item: T) -> int:
        """A handler received *item*; returns how many deliveries of it came before."""
        with self._lock:
            before = self._consumed[item]
            self._consumed[item] += 1
            self._come.notify_all()
            return before

    def publish(
        self, producer: Producer, topic: str, body: Any, *, key: Any = None, **arguments: Any
    ) -> Receipt:
        """``producer.publish``, noted by its body; returns and raises the same.

        Messages of one key, or of one ``partition``, are in order only if one thread publishes
        them.
        """
        self.sent(body, arguments.get("partition") if key is None else key)
        try:
            receipt = producer.publish(topic, body, key=key, **arguments)
        except PublishError as error:
            if error.outcome is not Outcome.UNCERTAIN:
                self.refused(body)
            raise
        self.acknowledged(body)
        return receipt

    def handler(
        self, handle: Callable[[Message], object] | None = None
    ) -> Callable[[Message], object]:
        """A handler that notes the body of each message, and then does as *handle* does."""

        def noting(message: Message) -> object:
            self.consumed(message.body)  # type: ignore[arg-type]
            return handle(message) if handle else None

        return noting

    def wait(self, timeout: float) -> bool:
        """Wait until nothing is lost any more, for *timeout* seconds; whether that is so."""
        deadline = monotonic() + timeout
        with self._come:
            while not self._acknowledged <= self._consumed.keys():
                left = deadline - monotonic()
                if left <= 0:
                    return False
                self._come.wait(left)
        return True

    # ------------------------------------------------------------------------- what became of it

    @property
    def published(self) -> int:
        """Messages that were acknowledged."""
        with self._lock:
            return len(self._acknowledged)

    @property
    def deliveries(self) -> int:
        """Every one, copies too."""
        with self._lock:
            return self._consumed.total()

    def counts(self) -> Counter[T]:
        """How often each was consumed."""
        with self._lock:
            return self._consumed.copy()

    def lost(self) -> list[T]:
        """Messages that were acknowledged and never consumed, in the order they were sent."""
        with self._lock:
            missing = self._acknowledged - self._consumed.keys()
            return [item for item in self._sent if item in missing]

    def duplicates(self) -> dict[T, int]:
        """How often each was consumed that came more than once."""
        return {item: count for item, count in self.counts().items() if count > 1}

    def phantoms(self) -> list[T]:
        """Messages that were consumed but never sent, or that the server had refused."""
        with self._lock:
            known = self._sent.keys() - self._refused
            known |= self._acknowledged
            return [item for item in self._consumed if item not in known]

    def disorder(self) -> list[Inversion]:
        """Messages that first came after one that was sent later with the same key."""
        with self._lock:
            numbers = dict(self._sent)
            order = list(self._consumed)
        items = list(numbers)
        keyed = [
            numbers[item] for item in order if item in numbers and numbers[item][0] is not None
        ]
        return [
            Inversion(found.key, items[found.item], items[found.behind])
            for found in inversions(keyed)
        ]

    def check(self, *, ordered: bool = True, most_duplicates: int | None = None) -> None:
        """Raise AssertionError, which names some, unless nothing is lost, invented or out of order.

        Args:
            ordered: False where several handlers share the messages of a key: a topic that is not
                an ordered one promises no order.
            most_duplicates: how many deliveries may be copies; None for any number.
        """
        findings: dict[str, Sequence[object]] = {
            "lost": self.lost(),
            "never sent": self.phantoms(),
            "out of order": self.disorder() if ordered else [],
        }
        complaints = [
            f"{len(found)} {what}: {', '.join(map(str, found[:_SHOWN]))}"
            for what, found in findings.items()
            if found
        ]
        copies = sum(count - 1 for count in self.duplicates().values())
        if most_duplicates is not None and copies > most_duplicates:
            complaints.append(f"{copies} copies, more than {most_duplicates}")
        if complaints:
            raise AssertionError(f"{self}\n" + "\n".join(complaints))

    def __str__(self) -> str:
        copies = sum(count - 1 for count in self.duplicates().values())
        return (
            f"{self.published} acknowledged, {self.deliveries} deliveries: "
            f"{len(self.lost())} lost, {copies} copies, {len(self.phantoms())} never sent, "
            f"{len(self.disorder())} out of order"
        )
