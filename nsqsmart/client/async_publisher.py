"""publish_async: unkeyed messages in pipelines, keyed ones in batches, failures tried again.

A message that fails is resumed by an ordinary publish call in a thread, with its pauses and
lookups: a scout. Those that failed with it follow in pipelines when the scout has found a way.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TypeGuard

from nsqsmart.client.failures import publish_error
from nsqsmart.client.hands import Hands
from nsqsmart.client.lane_queue import LaneQueues
from nsqsmart.client.pending import Pending
from nsqsmart.client.publication import Publication, build
from nsqsmart.client.publish_call import Call, Trial, after_failure, publish
from nsqsmart.client.publisher import Publisher, read_receipt
from nsqsmart.client.receipt import Receipt
from nsqsmart.client.room import Room
from nsqsmart.client.trace_log import publish_failed, published
from nsqsmart.client.traced import with_trace_lines
from nsqsmart.errors import (
    ClientClosed,
    ConnectionLost,
    OrderingNotSupported,
    Outcome,
    PartitionCountChanged,
    PublishError,
    PublishFailed,
    TopicHasNoChannel,
    TopicNotExist,
    TransportError,
)
from nsqsmart.names import Address
from nsqsmart.net.connection import Connection
from nsqsmart.net.pipeline import Pipeline
from nsqsmart.net.ticker import Ticker
from nsqsmart.policy.lookup_answers import TopicState
from nsqsmart.policy.routing import partition_for
from nsqsmart.policy.topology import Topology

log = logging.getLogger("nsqsmart")

_MAX_THREADS = 32
# What is wrong with the topic is wrong for every message of it.
_OF_THE_TOPIC = (TopicNotExist, TopicHasNoChannel, OrderingNotSupported)

Dial = Callable[[Address, float], Connection]


class AsyncPublisher:
    """Everything that publish_async needs in one process; its threads start on first use."""

    def __init__(self, shared: Publisher, dial: Dial) -> None:
        config = shared.config
        self._shared = shared
        self._dial = dial
        self._config = config
        self.room = Room(
            config.async_max_messages, config.async_max_bytes, block=config.on_full == "block"
        )
        self._hands = Hands("publish", _MAX_THREADS)
        self._ticker = Ticker("publish-timer", lambda: False, 60.0)
        self._ticker.start()
        self._lanes = LaneQueues(self._hands, self._publish, self._settle)
        self._pipelines: dict[Address, Pipeline[Pending]] = {}
        self._inboxes: dict[str, deque[Pending]] = {}
        """Messages that cannot go their way at once; a topic is here while a thread sees to it."""
        self._lock = threading.Lock()  # guards the two above
        self._closed = False

    def submit(self, publication: Publication, deadline: float, patience: float) -> Pending:
        """Send it on its way; raises what Room.enter raises."""
        size = len(publication.bodies[0])
        self.room.enter(size, deadline)
        try:
            pending = Pending(publication, deadline, patience)
            topic = publication.topic
            topology = self._shared.directory.known(topic)
            if publication.keyed or topic in self._inboxes or not _is_usable(topology):
                self._enqueue(pending)
            else:
                self._dispatch(pending, topology)
        except BaseException:
            self.room.leave(1, size)
            raise
        return pending

    def close(self) -> None:
        """End what is still on its way, and every thread; pool and turns are closed before."""
        self._closed = True
        self.room.close()
        with self._lock:
            pipelines = list(self._pipelines.values())
        for pipeline in pipelines:
            pipeline.break_off(ConnectionLost("the Producer was closed", sent=True))
        for pipeline in pipelines:
            pipeline.join()
        self._hands.close()
        self._ticker.close()

    def drop(self) -> None:
        """In a forked child: close the descriptors alone."""
        for pipeline in self._pipelines.values():
            pipeline.drop()

    def retire(self, addresses: frozenset[Address]) -> None:
        """Nothing more goes to these."""
        for pipeline in list(self._pipelines.values()):
            if pipeline.address in addresses:
                pipeline.retire()

    # ----------------------------------------------------------------------- what pipelines tell

    def on_stored(self, items: list[Pending]) -> None:
        """A plain OK came for each."""
        size = count = 0
        for pending in items:
            if pending.traced is not None:
                self.on_answer(pending, b"OK")
                continue
            size += len(pending.publication.bodies[0])
            count += 1
            pending.succeed()
        self.room.leave(count, size)
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
        item.succeed(stored)
        published(item.result(), monotonic() - item.started, self._shared.client_id)
        self.room.leave(1, len(item.publication.bodies[0]))

    def on_error(self, item: Pending, error: TransportError) -> None:
        """It was refused, or no answer can come any more."""
        item.reason = error
        if self._closed:
            outcome = Outcome.UNCERTAIN if error.sent else Outcome.NOT_SENT
            self._settle(item, _closed_error(item, outcome))
        else:
            self._enqueue(item)

    # ---------------------------------------------------------------------------------- the ways

    def _enqueue(self, pending: Pending) -> None:
        topic = pending.publication.topic
        with self._lock:
            inbox = self._inboxes.get(topic)
            if inbox is not None:
                inbox.append(pending)
                return
            self._inboxes[topic] = deque([pending])
        self._hands.do(lambda: self._empty_inbox(topic))

    def _empty_inbox(self, topic: str) -> None:
        while True:
            with self._lock:
                inbox = self._inboxes[topic]
                if not inbox:
                    del self._inboxes[topic]
                    return
                batch = inbox.copy()
                inbox.clear()
            try:
                self._find_ways(batch)
            except Exception as error:  # a defect; but nobody shall wait in vain
                log.exception("publish_async: topic %s", topic)
                for pending in batch:
                    self._settle(pending, PublishFailed(str(error), outcome=Outcome.UNCERTAIN))

    def _find_ways(self, batch: deque[Pending]) -> None:
        while batch:
            pending = batch[0]
            topology = self._picture(pending)
            if pending.reason is None and _is_usable(topology):
                self._dispatch(pending, topology)
                batch.popleft()
                continue
            outcome = self._scout(pending)
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

    def _picture(self, pending: Pending) -> Topology | None:
        """The picture to go by; None is for a scout to find out."""
        try:
            return self._shared.directory.get(pending.publication.topic, pending.deadline)
        except TransportError:
            return None

    def _scout(self, pending: Pending) -> Receipt | PublishError:
        """Publish it here and now."""
        publication = pending.publication
        if publication.keyed:
            self._lanes.wait_idle(publication.topic, pending.deadline)
        call = Call(self._shared, publication, pending.deadline, pending.retry)
        try:
            return with_trace_lines(
                self._shared.client_id, publication, lambda: _start(call, pending)
            )
        except ClientClosed:
            return _closed_error(pending, Outcome.NOT_SENT)
        except PublishError as error:
            return error

    def _account(self, pending: Pending) -> None:
        """Note its failure, which a scout has found a way around; or settle it, if it is final."""
        reason, target = pending.reason, pending.target
        if reason is None or target is None or pending.done():
            return
        now = monotonic()
        trial = Trial(pending.publication, target, target.partition, pending.started)
        retry = pending.retry or self._shared.new_retry(pending.deadline)
        pending.retry, verdict = after_failure(self._shared, trial, retry, reason, now)
        if pending.retry.may_retry(verdict, now):
            pending.reason = None
        else:
            error = publish_error(pending.publication.topic, pending.retry, reason, now=now)
            error.__cause__ = reason
            self._settle(pending, error)
            for trace_id in pending.publication.trace_ids:
                elapsed = now - pending.started
                publish_failed(
                    pending.publication.topic, trace_id, error, elapsed, self._shared.client_id
                )

    def _dispatch(self, pending: Pending, topology: Topology) -> None:
        publication = pending.publication
        try:
            if publication.keyed:
                self._lanes.put(self._partition(publication, topology), pending)
            else:
                self._send(pending, topology)
        except PublishError as error:
            self._settle(pending, error)
        except TransportError as error:
            self.on_error(pending, error)

    def _partition(self, publication: Publication, topology: Topology) -> int:
        if publication.partition is not None:
            return publication.partition
        assert publication.key is not None  # noqa: S101 - keyed means one of the two is there
        count = topology.partition_num
        partition = partition_for(publication.key, count, self._config.sharding)
        if self._shared.count_changed(publication.topic, count):
            raise PartitionCountChanged(f"topic {publication.topic!r} now has {count} partitions")
        return partition

    def _send(self, pending: Pending, topology: Topology) -> None:
        target = self._shared.pick(topology.targets)
        command = build(pending.publication, target, extended=topology.meta.extended)
        now = monotonic()
        patience = self._shared.patience_at(target)
        pending.depart(topology, target, command.traced, now, now + patience)
        pipeline = self._pipelines.get(target.address)
        if pipeline is None or pipeline.over or now >= pipeline.expires_at:
            pipeline = self._open(target.address, now)
        pipeline.submit(pending, command.data)

    def _open(self, address: Address, now: float) -> Pipeline[Pending]:
        with self._lock:
            old = self._pipelines.get(address)
            if old and not old.over and now < old.expires_at:
                return old
            pipeline = self._pipelines[address] = Pipeline(address, self, self._ticker)
        if old:
            old.retire()
        limit = now + self._config.dial_timeout + self._config.handshake_timeout
        pipeline.start(lambda: self._dial(address, limit), self._config)
        return pipeline

    def _publish(self, publication: Publication, deadline: float) -> Receipt:
        try:
            return publish(self._shared, publication, deadline)
        except ClientClosed as error:
            raise PublishFailed("the Producer was closed", code="ClientClosed") from error

    def _settle(self, pending: Pending, outcome: Receipt | PublishError) -> None:
        if not pending.done():
            pending.settle(outcome)
            self.room.leave(1, len(pending.publication.bodies[0]))


def _start(call: Call, pending: Pending) -> Receipt:
    if pending.reason is None or pending.target is None:
        return call.run()
    return call.resume(pending.topology, pending.target, pending.reason, pending.started)


def _is_usable(topology: Topology | None) -> TypeGuard[Topology]:
    return topology is not None and topology.state is TopicState.FOUND and bool(topology.targets)


def _closed_error(pending: Pending, outcome: Outcome) -> PublishError:
    if pending.retry:
        outcome = max(outcome, pending.retry.outcome, key=lambda each: each.severity)
    error = PublishFailed(
        f"publish to {pending.publication.topic!r}: the Producer was closed (outcome: {outcome})",
        outcome=outcome,
        answered=outcome is not Outcome.UNCERTAIN,
        code="ClientClosed",
    )
    error.__cause__ = ClientClosed("the Producer was closed")
    return error
