"""Ids whose FIN may not have arrived: what nsqd delivers again of them is finished, not read.

An attempt that died between a slot and its FINs leaves some behind. Written by the attempt that
finds such slots, before it asks for messages; old ones are forgotten.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from nsqsmart.spark.plan import Task
from nsqsmart.spark.store import Store

_SEPARATOR = "\n"


class DoubtLedger:
    """The doubtful ids of one source, in *folder*, which must be there.

    A file for each time that something was noted: ``SECONDS!PLACE!RANDOM``.
    """

    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self._folder = folder

    def add(self, task: Task, ids: Iterable[str], now: int) -> None:
        """Note *ids*, which a dead attempt at *task* read; *now* in seconds since 1970."""
        name = f"{now:012d}!{task.place}!{uuid.uuid4().hex}"
        self._store.put(f"{self._folder}/{name}", _SEPARATOR.join(sorted(ids)).encode())

    def ids(self, task: Task) -> set[str]:
        """All that nsqd may deliver again to *task*, whichever task of its place read them."""
        found: set[str] = set()
        for name in self._store.names(self._folder):
            if name.split("!")[1] == task.place:
                try:
                    text = self._store.get(f"{self._folder}/{name}").decode()
                except FileNotFoundError:  # forgotten a moment ago
                    continue
                found.update(filter(None, text.split(_SEPARATOR)))
        return found

    def forget_before(self, moment: int) -> None:
        """Forget what was noted before *moment*: nsqd has given up on it."""
        for name in self._store.names(self._folder):
            if int(name.partition("!")[0]) < moment:
                self._store.discard(f"{self._folder}/{name}")
