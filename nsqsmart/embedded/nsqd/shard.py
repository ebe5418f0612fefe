"""A partition as the servers use it: its lock, its leader, and whether it takes writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, NamedTuple, TypeVar

from nsqsmart.embedded.broker.consumer import FrameSink
from nsqsmart.embedded.broker.log import NewMessage
from nsqsmart.embedded.broker.partition import Partition
from nsqsmart.embedded.broker.records import Record
from nsqsmart.embedded.nsqd.refusals import CommandRefused, not_leader
from nsqsmart.embedded.serving.loop import Loop

P = TypeVar("P", bound=Partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """What a topic was created with."""

    name: str
    partitions: int = 1
    replicas: int = 1
    ordered: bool = False
    extended: bool = False
    multi_part: bool = False
    channel_auto_create: bool = True


class Write(NamedTuple):
    """How a command writes: what its failures are called, and whether it queues to be written.

    Plain PUB and MPUB wait for each other; those with a trace or a header do not
    (protocol#lost-follower).
    """

    failed: str = "E_PUB_FAILED"
    queued: bool = True

    @property
    def batch(self) -> bool:
        """Whether it is one of the MPUB kind."""
        return self.failed == "E_MPUB_FAILED"


PUB = Write()
MPUB = Write("E_MPUB_FAILED")
SINGLE_AT_ONCE = Write(queued=False)
BATCH_AT_ONCE = Write("E_MPUB_FAILED", queued=False)


class Shard(Generic[P]):
    """One partition (an original topic has one), and its lock.

    ``leader`` is the node that serves it; on an original nsqd the node itself. ``refusal`` says
    why it takes no writes, None when it does; ``hold`` is set while writes must wait for replicas
    that do not answer; ``confirm_refused`` while ordered channels cannot replicate a FIN,
    ``confirm_hold`` while they wait for that, and say whether it worked.
    """

    def __init__(self, meta: TopicDescription, number: int, partition: P, loop: Loop) -> None:
        self.meta = meta
        self.number = number
        self.partition = partition
        self.lock = threading.Lock()
        self.leader: object = None
        self.refusal: Callable[[], CommandRefused] | None = None
        self.hold: Callable[[Write], None] | None = None
        self.consumable = True
        self.confirm_refused = False
        self.confirm_hold: Callable[[], bool] | None = None
        self.asleep = False
        self._loop = loop
        self._armed = inf

    def check_write(self, node: object) -> None:
        """Raise what a write on *node* is refused with; called with the lock."""
        if self.leader is not node:
            raise not_leader()
        if self.refusal is not None:
            raise self.refusal()

    def publish(
        self, node: object, entries: Sequence[NewMessage], write: Write = PUB
    ) -> tuple[list[Record], list[FrameSink]]:
        """Store *entries*; the records, and the sinks to flush.

        Raises :class:`~nsqsmart.embedded.nsqd.refusals.CommandRefused` when *node* may not write.
        """
        hold = self.hold
        if hold is not None and self.leader is node:
            hold(write)
        with self.lock:
            self.check_write(node)
            stored = self.partition.publish(entries, time.time_ns(), time.monotonic())
        self.rearm()
        return stored

    def run(self, action: Callable[[P, float], Iterable[FrameSink]]) -> None:
        """Do *action* (partition, now) under the lock, then flush the sinks it returns."""
        with self.lock:
            woken = action(self.partition, time.monotonic())
        self.rearm()
        for sink in set(woken):
            sink.flush()

    def pump(self) -> None:
        """Send what may be sent now."""
        self.run(lambda partition, now: partition.pump(now))

    def rearm(self) -> None:
        """See to it that :meth:`_ring` runs when something is due."""
        due = self.partition.alarm.at
        if due < self._armed:
            self._armed = due
            self._loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self._armed = inf
        # A hung or dead leader does nothing; when it is revived it is rung again.
        if self.asleep:
            return
        if self.partition.alarm.at > time.monotonic():
            self.rearm()
            return
        self.run(lambda partition, now: partition.expire(now))

    def wake(self) -> None:
        """Do what became due while the leader was asleep."""
        self.asleep = False
        self.run(lambda partition, now: partition.expire(now))
