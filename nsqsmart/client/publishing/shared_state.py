"""What all calls of a producer share in one process."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Collection, Sequence
from time import monotonic
from typing import NamedTuple, Protocol
from weakref import ref

from nsqsmart.client.publishing.turns import Turns
from nsqsmart.client.shared.arguments import Publication
from nsqsmart.client.shared.directory import Directory
from nsqsmart.client.shared.log_fields import log_fields
from nsqsmart.client.shared.metrics import Meter
from nsqsmart.client.shared.receipt import Receipt
from nsqsmart.config import ProducerConfig
from nsqsmart.errors import ProtocolError
from nsqsmart.names import Address
from nsqsmart.net.pool import ConnectionPool
from nsqsmart.net.waiters import Latch
from nsqsmart.policy.outages import Outages
from nsqsmart.policy.retry import Retry
from nsqsmart.policy.routing import Rotation
from nsqsmart.policy.topology import Target, Topology
from nsqsmart.wire import commands
from nsqsmart.wire.frames import OK
from nsqsmart.wire.receipts import TracedReceipt, decode_receipt

log = logging.getLogger("nsqsmart")

_QUIET = 1.0  # seconds: a leader that moves is found sooner

_RESPONSE_TIMEOUT = 10.0
# A redesigned nsqd that lost a follower answers after 12 s (protocol#lost-follower).
_RESPONSE_TIMEOUT_REDESIGNED = 20.0


class Route(NamedTuple):
    """A target, the first lines of PUB and MPUB, and the receipt of a message stored at once."""

    target: Target
    line: bytes
    batch_line: bytes
    receipt: Receipt


def make_routes(topology: Topology) -> tuple[Route, ...]:
    """One for each target of *topology*."""
    topic = topology.topic
    return tuple(
        Route(
            target,
            commands.prefix("PUB", topic, target.partition),
            commands.prefix("MPUB", topic, target.partition),
            Receipt(topic, target.partition, target.name),
        )
        for target in topology.targets
    )


class _FailingTopic:
    """Since when a topic fails, and what was said last."""

    __slots__ = ("ended", "reason", "since", "told")

    def __init__(self, since: float) -> None:
        self.since = since
        self.reason = ""
        self.ended = False  # whether a call has given up
        self.told = False


class About(Protocol):
    """A message."""

    topic: str


class FailingTopics:
    """What failed since it last worked, by topic.

    ``topics`` is empty for as long as everything works; a call that succeeds checks only that.
    """

    def __init__(self) -> None:
        self.topics: dict[str, _FailingTopic] = {}
        self._lock = threading.Lock()  # guards both
        self._working: set[str] = set()

    def failed(self, topic: str, reason: str, began: float, *, ended: bool = False) -> None:
        """An attempt that began at *began* (monotonic seconds) failed; *ended*: its call as well.

        Logs one warning when attempts have failed for a second.
        """
        now = monotonic()
        with self._lock:
            trouble = self.topics.setdefault(topic, _FailingTopic(began))
            self._working.discard(topic)
            trouble.reason = reason
            trouble.ended |= ended
            tell = not ended and not trouble.told and now >= trouble.since + _QUIET
            trouble.told |= tell
        if tell:
            log.warning(
                "publishing to topic %s has failed for %.1f s, and is tried again: %s",
                topic,
                now - trouble.since,
                reason,
                extra=log_fields(topic),
            )

    def worked(self, topic: str) -> None:
        """A message of *topic* was stored."""
        with self._lock:
            trouble = self.topics.pop(topic, None)
            self._working.add(topic)
            if not self.topics:
                self._working.clear()
        if trouble and trouble.told:
            log.warning(
                "publishing to topic %s works again, after %.1f s",
                topic,
                monotonic() - trouble.since,
                extra=log_fields(topic),
            )

    def note_stored(self, items: Sequence[About]) -> None:
        """Each of *items* was stored."""
        if self.topics:
            for topic in {each.topic for each in items}:
                self.worked(topic)

    def reasons(self) -> list[str]:
        """Why publishing fails, by topic: where a call gave up, or after a second of failures."""
        now = monotonic()
        with self._lock:
            return [
                f"topic {topic} for {now - each.since:.0f} s: {each.reason}"
                for topic, each in sorted(self.topics.items())
                if each.ended or now >= each.since + _QUIET
            ]

    @property
    def everywhere(self) -> bool:
        """Whether nothing has worked since."""
        return bool(self.topics) and not self._working


class PublishingState:
    """Pool, topologies, turns, and what was learned of nodes and topics."""

    def __init__(
        self,
        config: ProducerConfig,
        directory: Directory,
        pool: ConnectionPool,
        client_id: str,
        meter: Meter | None = None,
    ) -> None:
        self.client_id = client_id
        self.config = config
        self.directory = directory
        self.pool = pool
        self.meter = meter
        """Metrics that every ended call is reported to; None without metrics."""
        self.turns = Turns()
        self.ended = False
        """Whether waiting calls must end."""
        self.ending = Latch()
        """Opens when waiting calls must end."""
        self._calls: dict[int, ref[object]] = {}
        self.outages: Outages[Address] = Outages()
        self.failing_topics = FailingTopics()
        self.fences: dict[tuple[str, int | None], float] = {}
        """Until when nothing follows an unanswered keyed command (decisions#7)."""
        self._counts: dict[str, int] = {}
        self._loosened: set[str] = set()
        self._routes: dict[str, tuple[Topology, tuple[Route, ...]]] = {}
        self._one_attempt = config.publish_attempts == 1
        self._patience = config.response_timeout or _RESPONSE_TIMEOUT
        self.patience_redesigned = config.response_timeout or _RESPONSE_TIMEOUT_REDESIGNED
        self._rotation = Rotation(random.randrange(1 << 16))  # noqa: S311 - spreads producers

    def route(self, topic: str, now: float) -> Route | None:
        """The next target of a plain message; one that fails only if there is no other.

        None while the topology is unknown.
        """
        routes = self._find_routes(topic, now)
        if routes is None:
            return None
        if not self.outages.nodes:
            return routes[next(self._rotation.turns) % len(routes)]
        target = self.pick([route.target for route in routes], now=now)
        return next(route for route in routes if route.target is target)

    def pick(
        self, targets: Sequence[Target], avoid: Collection[Address] = (), *, now: float
    ) -> Target:
        """The next target for an unkeyed message: none of *avoid*, nor one that fails."""
        if not self.outages.nodes:
            return self._rotation.pick(targets, avoid)
        target = self._rotation.pick(targets, self.outages.avoided(now).union(avoid))
        self.outages.probe(target.address, now)
        return target

    def exchange(
        self,
        target: Target,
        command: bytes,
        traced: int | None,
        deadline: float,
        now: float,
        *,
        batch: bool = False,
        keyed: bool = False,
    ) -> TracedReceipt | None:
        """One command and its answer on a connection that is lent for it.

        *traced* is the trace id that the receipt must show, None for a plain OK.
        """
        node, partition, _ = target
        # What may not be sent again must not be sent to a connection that has ended.
        look = keyed or self._one_attempt
        connection = self.pool.take(node.address, deadline, now, look=look)
        try:
            now = connection.lent_at
            limit = now + (self._patience if partition is None else self.patience_redesigned)
            data = connection.exchange(command, min(deadline, limit), now)
            receipt = None
            if traced is not None or data != OK:
                connection.spoiled = True
                receipt = read_receipt(data, traced)
                connection.spoiled = False
        except BaseException:
            # A batch may be left unread in the middle: the rest would be taken for commands.
            connection.spoiled |= batch
            raise
        finally:
            self.pool.give_back(connection)
        if self.outages.nodes:
            self.outages.worked(node.address)
        return receipt

    def patience_at(self, target: Target) -> float:
        """Seconds to wait for one answer."""
        return self._patience if target.partition is None else self.patience_redesigned

    def begin(self, call: object) -> None:
        """*call* may be between two exchanges, where it has no loan; to be ended by :meth:`end`."""
        self._calls[id(call)] = ref(call)

    def end(self, call: object) -> None:
        """*call* is over."""
        self._calls.pop(id(call), None)
        self.pool.tell_watchers()

    def close(self, deadline: float) -> None:
        """Let the calls under way finish until *deadline*, then end them."""
        self.pool.wait_for_loans(deadline, self._is_busy)
        self.ended = True
        self.ending.open()
        self.turns.close()
        self.directory.close()
        self.pool.close()

    def _find_routes(self, topic: str, now: float) -> tuple[Route, ...] | None:
        topology = self.directory.known(topic, now)
        found = self._routes.get(topic)
        if found is not None and found[0] is topology:
            return found[1]
        if topology is None or not topology.targets:
            return None
        made = make_routes(topology)
        self._routes[topic] = topology, made
        return made

    def _is_busy(self) -> bool:
        return any(call() is not None for call in list(self._calls.values()))

    def new_retry(self, deadline: float) -> Retry:
        """Where a call stands that has tried nothing yet."""
        config = self.config
        return Retry(deadline, config.retry_pause, config.max_retry_pause, config.publish_attempts)

    def lost(self, address: Address, now: float) -> None:
        """Nothing can be sent to *address*: others are preferred, and its connections end."""
        self.outages.failed(address, now)
        self.pool.retire(address)

    def loosen(self, publication: Publication) -> Publication:
        """*publication* for an original nsqd: with ordering="best-effort" it has no key there.

        Said once for each topic. A partition, which is a place and no order, stays what it was.
        """
        if publication.key is None or self.config.ordering == "required":
            return publication
        topic = publication.topic
        if topic not in self._loosened:
            self._loosened.add(topic)
            log.warning(
                "topic %s is on an original NSQ: messages with a key are sent without order, as "
                "ordering=best-effort permits",
                topic,
                extra=log_fields(topic),
            )
        return publication._replace(key=None)

    def count_changed(self, topic: str, count: int) -> int:
        """The partition count that keys were mapped by before, if it was another; said once."""
        before = self._counts.setdefault(topic, count)
        if before == count:
            return 0
        self._counts[topic] = count
        log.warning(
            "topic %s has %d partitions now, not %d: keys move to others",
            topic,
            count,
            before,
            extra=log_fields(topic),
        )
        return before


def read_receipt(data: bytes, traced: int | None) -> TracedReceipt | None:
    """The receipt in an answer; no success without the very OK that was asked for."""
    receipt = decode_receipt(data)
    if traced is None and receipt is not None:
        raise ProtocolError("a receipt answers a command that asks for none")
    if traced is not None and (receipt is None or receipt.trace_id != traced):
        raise ProtocolError("the receipt is not that of this message")
    return receipt
