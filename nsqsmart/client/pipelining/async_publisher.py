"""publish_async: unkeyed messages in pipelines, keyed ones in batches, failures tried again.

A message that fails is resumed by an ordinary publish call in a thread, with its pauses and
lookups: a scout. Those that failed with it follow in pipelines once the scout has succeeded.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections import deque
from time import monotonic
from typing import TypeGuard

from nsqsmart.client.pipelining.async_retry import (
    account,
    closed_error,
    interrupted_error,
    late_error,
    scout,
)
from nsqsmart.client.pipelining.connections import Dial, Pipes
from nsqsmart.client.pipelining.in_flight import InFlightLimit
from nsqsmart.client.pipelining.keyed_batches import Executor, KeyedBatches
from nsqsmart.client.pipelining.pending import Overdue, Pending
from nsqsmart.client.publishing.call import build, carry_out
from nsqsmart.client.publishing.shared_state import PublishingState, read_receipt
from nsqsmart.client.shared.arguments import Publication
from nsqsmart.client.shared.errors import OrderingNotSupported, TopicNotExist
from nsqsmart.client.shared.log_fields import log_fields
from nsqsmart.client.shared.metrics import Meter
from nsqsmart.client.shared.receipt import Receipt
from nsqsmart.client.shared.trace_log import published
from nsqsmart.errors import (
    ClientClosed,
    Outcome,
    PartitionCountChanged,
    PublishError,
    PublishFailed,
    TopicHasNoChannel,
    TransportError,
)
from nsqsmart.metrics import Result
from nsqsmart.names import Address
from nsqsmart.net.ticker import Ticker
from nsqsmart.policy.answers.lookup import TopicState
from nsqsmart.policy.routing import partition_for
from nsqsmart.policy.topology import Topology

log = logging.getLogger("nsqsmart")

_MAX_THREADS = 32
# What is wrong with the topic is wrong for every message of it.
_OF_THE_TOPIC = (TopicNotExist, TopicHasNoChannel, OrderingNotSupported)

_pack = struct.Struct(">I").pack


class AsyncPublisher:
    """Everything that publish_async needs in one process; its threads start on first use."""

    def __init__(self, shared: PublishingState, dial: Dial) -> None:
        config = shared.config
        self._shared = shared
        self.in_flight = InFlightLimit(
            config.async_max_messages, config.async_max_bytes, block=config.on_full == "block"
        )
        self._executor = Executor("publish", _MAX_THREADS)
        self._ticker = Ticker("publish-timer", lambda: False, 60.0)
        self._ticker.start()
        self._overdue = Overdue(self._ticker, self._expire)
        self._keyed_batches = KeyedBatches(
            self._executor, self._publish, self._settle, self._overdue.take
        )
        self._pipes = Pipes(config, dial, self, self._ticker)
        self._inboxes: dict[str, deque[Pending]] = {}
        """Messages that failed, by topic; a topic is here while a thread retries its messages."""
        self._attended: set[str] = set()  # topics whose thread has begun
        self._lock = threading.Lock()  # guards the two above
        self._closed = False

    def submit(self, publication: Publication, deadline: float, patience: float) -> Pending:
        """Send *publication*; raises what InFlightLimit.enter raises."""
        topic, body = publication.topic, publication.bodies[0]
        publication = self._fit(publication, self._shared.directory.known(topic))
        pending = Pending(topic, body, publication, deadline, patience)
        self.in_flight.enter(len(body), deadline)
        try:
            topology = self._shared.directory.known(topic)
            if publication.keyed or topic in self._inboxes or not _is_usable(topology):
                self._enqueue(pending)
            else:
                self._dispatch(pending, topology)
        except BaseException:
            self._take_back(pending)
            raise
        return pending

    def submit_plain(self, topic: str, body: bytes, now: float, patience: float) -> Pending:
        """Send a message without key, partition, trace, header and delay."""
        deadline = now + patience
        pending = Pending(topic, body, None, deadline, patience)
        self.in_flight.enter(len(body), deadline)
        try:
            route = None if topic in self._inboxes else self._shared.route(topic, now)
            if route is None:
                self._enqueue(pending)
            else:
                target = route.target
                command = b"".join((route.line, _pack(len(body)), body))
                pending.depart(target, None, now, now + self._shared.patience_at(target))
                self._pipes.submit(pending, target.node.address, command, now)
        except BaseException:
            self._take_back(pending)
            raise
        return pending

    def _take_back(self, pending: Pending) -> None:
        """An interrupt: it may be under way, and the caller has nothing to ask for its outcome."""
        waits = self._overdue.take(pending)
        outcome = Outcome.NOT_SENT if waits else Outcome.UNCERTAIN
        self._settle(pending, interrupted_error(pending, outcome))

    def close(self) -> None:
        """Fail every message in flight, and end every thread; pool and turns are closed before."""
        self.refuse()
        self.in_flight.close()
        self._pipes.close()
        self._executor.close()
        self._ticker.close()

    def refuse(self) -> None:
        """Whatever fails from now on is not tried again."""
        self._closed = True

    def drop(self) -> None:
        """In a forked child: close the descriptors alone."""
        self._pipes.drop()

    def retire(self, addresses: frozenset[Address]) -> None:
        """Retire the pipelines to these nsqds: no more messages are sent to them."""
        self._pipes.retire(addresses)

    # ----------------------------------------------------------------------- what pipelines tell

    def on_stored(self, items: list[Pending]) -> None:
        """A plain OK came for each."""
        size = count = 0
        for pending in items:
            if pending.traced is not None:
                self.on_answer(pending, b"OK")
                continue
            if not pending.claim():
                continue
            size += len(pending.body)
            count += 1
            pending.succeed()
            if self._shared.meter is not None:
                note_settled(self._shared.meter, pending, ok=True)
        self.in_flight.leave(count, size)
        self._shared.failing_topics.note_stored(items)
        target = items[0].target if items else None
        if target and self._shared.outages.nodes:
            self._shared.outages.worked(target.address)

    def on_answer(self, item: Pending, data: bytes) -> None:
        """A receipt came."""
        try:
            stored = read_receipt(data, item.traced)
        except TransportError as error:
            self.on_error(item, error)
            raise
        if not item.claim():
            return
        item.succeed(stored)
        self._shared.failing_topics.note_stored([item])
        published(item.result(), monotonic() - item.started, self._shared.client_id)
        note_settled(self._shared.meter, item, ok=True)
        self.in_flight.leave(1, len(item.body))

    def on_error(self, item: Pending, error: TransportError) -> None:
        """It was refused, or no answer can come any more."""
        if item.done():
            return
        item.reason = error
        if self._closed:
            outcome = Outcome.UNCERTAIN if error.sent else Outcome.NOT_SENT
            self._settle(item, closed_error(item, outcome))
        else:
            self._enqueue(item)

    # ---------------------------------------------------------------------------------- the ways

    def _enqueue(self, pending: Pending) -> None:
        topic = pending.topic
        self._overdue.watch(pending)
        opened = False
        try:
            with self._lock:
                inbox = self._inboxes.get(topic)
                if inbox is not None:
                    inbox.append(pending)
                    return
                opened = True
                self._inboxes[topic] = deque([pending])
            self._executor.do(lambda: self._empty_inbox(topic))
        except BaseException:
            if opened:  # an interrupt: others may have joined it
                self._executor.do(lambda: self._empty_inbox(topic))
            raise

    def _empty_inbox(self, topic: str) -> None:
        with self._lock:
            if topic in self._attended or topic not in self._inboxes:
                return
            self._attended.add(topic)
        while True:
            with self._lock:
                inbox = self._inboxes[topic]
                if not inbox:
                    del self._inboxes[topic]
                    self._attended.discard(topic)
                    return
                batch = inbox.copy()
                inbox.clear()
            try:
                self._find_ways(batch)
            except Exception as error:  # a defect; but no caller shall wait in vain
                log.exception("publish_async: topic %s", topic, extra=log_fields(topic))
                for pending in batch:
                    self._settle(pending, PublishFailed(str(error), outcome=Outcome.UNCERTAIN))

    def _find_ways(self, batch: deque[Pending]) -> None:
        while batch:
            pending = batch[0]
            topology = self._topology(pending)
            if pending.reason is None and _is_usable(topology):
                pending.publication = self._fit(pending.publication, topology)
                # A keyed one goes on waiting, in its batch queue.
                if pending.publication.keyed or self._overdue.take(pending):
                    self._dispatch(pending, topology)
                batch.popleft()
            elif self._overdue.take(pending):
                self._send_scout(pending, batch)
            else:
                batch.popleft()

    def _send_scout(self, pending: Pending, batch: deque[Pending]) -> None:
        """Publish the first of *batch* here and now; what comes of it may concern the others."""
        if pending.publication.keyed:
            self._keyed_batches.wait_idle(pending.topic, pending.deadline)
        outcome = scout(self._shared, pending)
        batch.popleft()
        self._settle(pending, outcome)
        if isinstance(outcome, _OF_THE_TOPIC):
            while batch:
                self._settle(batch.popleft(), outcome)
        elif isinstance(outcome, Receipt):
            for other in batch:
                self._account(other)
            left = [other for other in batch if not other.done()]
            batch.clear()
            batch.extend(left)

    def _topology(self, pending: Pending) -> Topology | None:
        """The topology to use; None if a scout has to look it up."""
        try:
            return self._shared.directory.get(pending.topic, pending.deadline)
        except TransportError:
            return None

    def _account(self, pending: Pending) -> None:
        """Send it again after a scout has succeeded, unless its failure is final."""
        error = account(self._shared, pending)
        if error is not None:
            self._settle(pending, error)

    def _expire(self, pending: Pending) -> None:
        """On the ticker: its deadline came while it waited to be sent."""
        self._settle(pending, account(self._shared, pending) or late_error(pending))

    def _dispatch(self, pending: Pending, topology: Topology) -> None:
        publication = pending.publication
        try:
            if publication.keyed:
                self._keyed_batches.put(_partition(self._shared, publication, topology), pending)
            else:
                self._send(pending, topology)
        except PublishError as error:
            self._settle(pending, error)
        except TransportError as error:
            self.on_error(pending, error)

    def _fit(self, publication: Publication, topology: Topology | None) -> Publication:
        """*publication*, without its key where that means nothing and need not."""
        if not publication.keyed or not _is_usable(topology) or topology.redesigned:
            return publication
        return self._shared.loosen(publication)

    def _send(self, pending: Pending, topology: Topology) -> None:
        now = monotonic()
        target = self._shared.pick(topology.targets, now=now)
        command = build(pending.publication, target, extended=topology.meta.extended)
        pending.depart(target, command.traced, now, now + self._shared.patience_at(target))
        self._pipes.submit(pending, target.address, command.data, now)

    def _publish(self, publication: Publication, deadline: float) -> Receipt:
        try:
            return carry_out(self._shared, publication, deadline)
        except ClientClosed as error:
            raise PublishFailed("the Producer was closed", code="ClientClosed") from error

    def _settle(self, pending: Pending, outcome: Receipt | PublishError) -> None:
        self._overdue.take(pending)
        if pending.claim():
            pending.settle(outcome)
            note_settled(self._shared.meter, pending, ok=isinstance(outcome, Receipt))
            self.in_flight.leave(1, len(pending.body))


def _partition(shared: PublishingState, publication: Publication, topology: Topology) -> int:
    if publication.partition is not None:
        return publication.partition
    assert publication.key is not None  # noqa: S101 - keyed means one of the two is there
    count = topology.partition_num
    partition = partition_for(publication.key, count, shared.config.sharding)
    if shared.count_changed(publication.topic, count):
        raise PartitionCountChanged(f"topic {publication.topic!r} now has {count} partitions")
    return partition


def _is_usable(topology: Topology | None) -> TypeGuard[Topology]:
    return topology is not None and topology.state is TopicState.FOUND and bool(topology.targets)


def note_settled(meter: Meter | None, pending: Pending, *, ok: bool) -> None:
    """A message of publish_async came to its end."""
    if meter is None:
        return
    began = pending.deadline - pending.patience
    seconds = time.monotonic() - began
    result: Result = "ok" if ok else "error"
    meter.published(pending.topic, result, 1, len(pending.body), seconds)
