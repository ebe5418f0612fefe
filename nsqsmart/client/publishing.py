"""One publish call: route, lend, exchange, classify, look up again, retry; one deadline.

All of it runs in the caller's thread.
"""

from __future__ import annotations

import random
import threading
from time import monotonic, sleep
from typing import NamedTuple

from nsqsmart.client.directory import Directory
from nsqsmart.client.failures import NoLeader, code_of, publish_error
from nsqsmart.client.receipt import Receipt
from nsqsmart.client.turns import Turns, new_token
from nsqsmart.config import ProducerConfig
from nsqsmart.errors import (
    Attempt,
    ClientClosed,
    NotSupported,
    OrderingNotSupported,
    PartitionCountChanged,
    ProtocolError,
    TopicHasNoChannel,
    TopicNotExist,
    TransportError,
)
from nsqsmart.names import Address
from nsqsmart.net.connection import Connection
from nsqsmart.net.pool import ConnectionPool
from nsqsmart.policy.lookup_answers import TopicState
from nsqsmart.policy.retry import Retry, Verdict, judge
from nsqsmart.policy.routing import Key, Rotation, partition_for
from nsqsmart.policy.topology import Refused, Target, Topology
from nsqsmart.wire import commands
from nsqsmart.wire.frames import OK
from nsqsmart.wire.receipts import TracedReceipt, decode_receipt

_RESPONSE_TIMEOUT = 10.0
# A redesigned nsqd that lost a follower answers after 12 s (cluster 6.1).
_RESPONSE_TIMEOUT_REDESIGNED = 20.0
_UNKNOWN_LOOKUPS = 2


class Publication(NamedTuple):
    """What one call is to publish; ``trace_id`` None is untraced, ``must_trace`` the caller's."""

    topic: str
    body: bytes
    key: Key | None = None
    partition: int | None = None
    trace_id: int | None = None
    must_trace: bool = False

    @property
    def keyed(self) -> bool:
        """Whether it belongs to one partition and to no other."""
        return self.key is not None or self.partition is not None


class Publisher:
    """The parts that a producer's calls share, in one process."""

    def __init__(self, config: ProducerConfig, directory: Directory, pool: ConnectionPool) -> None:
        self.config = config
        self.directory = directory
        self.pool = pool
        self.turns = Turns()
        self.patience = config.response_timeout or _RESPONSE_TIMEOUT
        self.patience_redesigned = config.response_timeout or _RESPONSE_TIMEOUT_REDESIGNED
        self.rotation = Rotation(random.randrange(1 << 16))  # noqa: S311 - spreads producers

    def publish(self, publication: Publication, deadline: float) -> Receipt:
        """Return once an nsqd has it, or raise a PublishError (ClientClosed: not even tried)."""
        return _Call(self, publication, deadline).run()

    def publish_plain(self, topic: str, body: bytes, deadline: float) -> Receipt:
        """The same for a message without key, partition and trace.

        The way of nearly every message: a short one for as long as nothing goes wrong.
        """
        topology = self.directory.known(topic)
        if topology is None or not topology.targets:
            return _Call(self, Publication(topic, body), deadline).run()
        target = self.rotation.pick(topology.targets)
        command = commands.pub(topic, body, target.partition)
        started = monotonic()
        try:
            self.exchange(target, command, None, deadline)
        except (TransportError, ClientClosed) as error:
            call = _Call(self, Publication(topic, body), deadline)
            return call.resume(topology, target, error, started)
        return Receipt(topic, target.partition, target.name)

    def exchange(
        self, target: Target, command: bytes, trace_id: int | None, deadline: float
    ) -> TracedReceipt | None:
        """One command and its answer on a connection that is lent for it."""
        patience = self.patience if target.partition is None else self.patience_redesigned
        connection = self.pool.take(target.address, deadline)
        try:
            data = connection.exchange(command, min(deadline, monotonic() + patience))
            if trace_id is None and data == OK:
                return None
            return _understand(connection, data, trace_id)
        finally:
            self.pool.give_back(connection)


class _Call:
    """The state of one publish call; what only a failure needs is made when one comes."""

    __slots__ = (
        "_avoid",
        "_deadline",
        "_failed",
        "_partition",
        "_publication",
        "_shared",
        "_target",
        "_topology",
        "_turn",
        "_unknown_in",
    )

    def __init__(self, shared: Publisher, publication: Publication, deadline: float) -> None:
        self._shared = shared
        self._publication = publication
        self._deadline = deadline
        self._failed: Retry | None = None
        self._topology: Topology | None = None
        self._target: Target | None = None
        self._partition: int | None = None
        self._turn: threading.Lock | None = None
        self._avoid: frozenset[Address] = frozenset()
        self._unknown_in: frozenset[int] = frozenset()

    def resume(
        self,
        topology: Topology,
        target: Target,
        error: TransportError | ClientClosed,
        started: float,
    ) -> Receipt:
        """Go on after a first attempt at *target* that ended with *error*."""
        self._topology, self._target = topology, target
        self._recover(error, started)
        return self.run()

    def run(self) -> Receipt:
        """Attempt until it is stored, or policy or time ends it."""
        try:
            while True:
                started = monotonic()
                try:
                    return self._attempt()
                except (TransportError, ClientClosed) as error:
                    self._recover(error, started)
        finally:
            if self._turn and self._partition is not None:
                key = (self._publication.topic, self._partition)
                self._shared.turns.give_up(key, self._turn)

    @property
    def _retry(self) -> Retry:
        """What has been tried so far."""
        if self._failed is None:
            config = self._shared.config
            self._failed = Retry(
                self._deadline,
                config.retry_pause,
                config.max_retry_pause,
                config.publish_attempts,
            )
        return self._failed

    def _attempt(self) -> Receipt:
        self._target = None
        publication, deadline = self._publication, self._deadline
        topology = self._topology
        if topology is None:
            topology = self._shared.directory.get(publication.topic, deadline)
            self._topology = topology
        target = self._target = self._route(topology)
        command, traced = self._command(target)
        return self._receipt(target, self._shared.exchange(target, command, traced, deadline))

    def _route(self, topology: Topology) -> Target:
        publication = self._publication
        if topology.state is not TopicState.FOUND:
            return self._route_unknown(topology)
        if publication.key is None and publication.partition is None:
            if not topology.targets:
                raise NoLeader(f"no partition of topic {publication.topic!r} has a leader")
            return self._shared.rotation.pick(topology.targets, self._avoid)
        partition = self._keep_to_partition(topology)
        leader = topology.leaders.get(partition)
        if leader is None:
            raise NoLeader(f"partition {partition} of {publication.topic!r} has no leader")
        return Target.at(leader, partition)

    def _keep_to_partition(self, topology: Topology) -> int:
        """The message's one partition; waits for its turn there."""
        publication = self._publication
        if not topology.redesigned:
            raise OrderingNotSupported(
                f"topic {publication.topic!r} is on an original NSQ, which has no partitions",
                hint="publish without key= and partition=",
            )
        count = topology.partition_num
        partition = publication.partition
        if partition is None and publication.key is not None:
            partition = partition_for(publication.key, count, self._shared.config.sharding)
        if self._partition not in (None, partition):
            raise PartitionCountChanged(
                f"topic {publication.topic!r} now has {count} partitions; "
                f"the key moved from {self._partition} to {partition}",
                outcome=self._retry.outcome,
                attempts=self._retry.attempts,
            )
        assert partition is not None  # noqa: S101 - keyed means one of the two is there
        if partition >= count:
            raise NoLeader(f"topic {publication.topic!r} has {count} partitions, no {partition}")
        self._partition = partition
        if self._turn is None and self._shared.config.serialize:
            key = (publication.topic, partition)
            self._turn = new_token()
            self._shared.turns.take(key, self._turn, self._deadline)
        return partition

    def _route_unknown(self, topology: Topology) -> Target:
        """A topic that no lookup knows, or that has no channel yet."""
        topic = self._publication.topic
        if topology.state is TopicState.NO_CHANNEL:
            raise TopicHasNoChannel(
                f"topic {topic!r} has no channel, and takes no messages without one",
                outcome=self._retry.outcome,
                attempts=self._retry.attempts,
                hint=f"start a consumer, or POST /channel/create?topic={topic}&channel=NAME "
                "to the leader of each partition",
            )
        directory = self._shared.directory
        nodes = directory.nodes_for_new_topic(topic, self._deadline)
        if nodes and not self._publication.keyed:
            targets = [Target.at(node, None) for node in nodes]
            return self._shared.rotation.pick(targets, self._avoid)
        if nodes:
            self._keep_to_partition(topology)
        self._unknown_in |= {topology.generation}
        if len(self._unknown_in) >= _UNKNOWN_LOOKUPS:
            raise TopicNotExist(
                f"no nsqlookupd knows topic {topic!r}",
                outcome=self._retry.outcome,
                attempts=self._retry.attempts,
                hint="check its name; a redesigned cluster does not create topics by itself",
            )
        raise NoLeader(f"no nsqlookupd knows topic {topic!r}")

    def _command(self, target: Target) -> tuple[bytes, int | None]:
        publication = self._publication
        trace_id = publication.trace_id
        if target.partition is None and trace_id is not None:
            if publication.must_trace:
                raise NotSupported(f"{target.address} is an original nsqd: it cannot trace")
            trace_id = None
        if trace_id is None:
            return commands.pub(publication.topic, publication.body, target.partition), None
        command = commands.pub_trace(
            publication.topic, publication.body, trace_id, target.partition
        )
        return command, trace_id

    def _receipt(self, target: Target, traced: TracedReceipt | None) -> Receipt:
        tries = len(self._failed.attempts) + 1 if self._failed else 1
        found = traced or (None, None, None, None)
        return Receipt(self._publication.topic, target.partition, target.name, tries, *found)

    def _recover(self, error: TransportError | ClientClosed, started: float) -> None:
        """Prepare the next attempt after *error*, or raise what the caller shall see."""
        if isinstance(error, ClientClosed):
            raise self._failure(error) from error
        publication, target = self._publication, self._target
        config = self._shared.config
        verdict = judge(error, keyed=publication.keyed, retry_unanswered=config.retry_unanswered)
        now = monotonic()
        nsqd = target.name if target else None
        partition = target.partition if target else self._partition
        attempt = Attempt(nsqd, partition, code_of(error), now - started)
        self._failed = retry = self._retry.after(attempt, verdict)
        if not retry.may_retry(verdict, now):
            raise self._failure(error) from error
        if target:
            self._avoid |= {target.address}
            if not error.sent:
                self._shared.pool.retire(target.address)
        elsewhere = self._may_go_elsewhere(verdict)
        if not elsewhere:
            self._avoid = frozenset()
            sleep(retry.delay(now, random.uniform))
        if verdict.moved:
            self._look_again(target, wait=not elsewhere)
        if monotonic() >= self._deadline:
            # An attempt without time would only hide what really went wrong.
            raise self._failure(error) from error

    def _may_go_elsewhere(self, verdict: Verdict) -> bool:
        """Whether another node can take an unkeyed message at once, without a pause."""
        if self._publication.keyed or not verdict.elsewhere or self._topology is None:
            return False
        return any(target.address not in self._avoid for target in self._topology.targets)

    def _look_again(self, target: Target | None, *, wait: bool) -> None:
        seen = self._topology.generation if self._topology else 0
        refused = [Refused(target.partition, target.address)] if target else []
        try:
            self._topology = self._shared.directory.refresh(
                self._publication.topic, seen, self._deadline, refused=refused, wait=wait
            )
        except TransportError:
            # No lookup and no picture: the next attempt says so, and is counted.
            self._topology = None

    def _failure(self, error: TransportError | ClientClosed) -> Exception:
        return publish_error(self._publication.topic, self._retry, error, now=monotonic())


def _understand(connection: Connection, data: bytes, trace_id: int | None) -> TracedReceipt | None:
    """The receipt in an answer; no success without the very OK that was asked for."""
    connection.spoiled = True
    receipt = decode_receipt(data)
    if trace_id is not None and (receipt is None or receipt.trace_id != trace_id):
        raise ProtocolError("the receipt is not that of this message")
    connection.spoiled = False
    return receipt
