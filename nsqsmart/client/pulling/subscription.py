"""The PullSubscription: one connection, no thread, for tasks and tools."""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import monotonic, sleep
from types import TracebackType
from typing import Self, Unpack

from nsqsmart.client.messages.message import Message
from nsqsmart.client.pulling.connection import PullConnection
from nsqsmart.client.pulling.unacked import PullReport
from nsqsmart.client.shared.arguments import check_count, check_delay, check_timeout
from nsqsmart.client.shared.directory import Directory
from nsqsmart.client.shared.discovery import open_endpoint, prepare_endpoint
from nsqsmart.client.subscribing.request import (
    Assumptions,
    SubscribeRequest,
    check_connection,
    check_ordered,
    greeting_for,
    is_moved,
    permanent_error,
)
from nsqsmart.client.subscribing.start_position import begin_at, check_start
from nsqsmart.config import ConsumerConfig, ConsumerOptions, resolve
from nsqsmart.errors import (
    ClientClosed,
    ConfigError,
    ConnectError,
    DiscoveryError,
    NsqError,
    OrderingNotSupported,
    ServerError,
    SubscribeError,
    UsedAfterFork,
)
from nsqsmart.names import Address, check_channel, check_partition, check_topic
from nsqsmart.net.connection import open_connection
from nsqsmart.net.http.lookup import READ
from nsqsmart.policy.positions import position_text
from nsqsmart.policy.topology import Refused, Target, Topology

_NSQD_PORT = 4150
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


def choose_target(topology: Topology, partition: int | None, nsqd: str | None) -> Target:
    """The leader of *partition*, or the one at *nsqd*, or the only one there is.

    Raises DiscoveryError where it may be there later, ConfigError where the choice is not clear,
    OrderingNotSupported for a partition of a topic without them.
    """
    topic = topology.topic
    if not topology.targets:
        raise DiscoveryError(f"no nsqd has topic {topic!r}, as far as the lookups know")
    if partition is not None:
        return _leader(topology, partition, nsqd)
    if topology.partition_num > 1 and nsqd is None:
        raise ConfigError(
            f"topic {topic!r} has {topology.partition_num} partitions: say which, by partition="
        )
    found = [each for each in topology.targets if nsqd in (None, each.name)]
    if not found:
        raise DiscoveryError(f"topic {topic!r} is not at {nsqd} but at {_names(topology)}")
    if len(found) > 1 and nsqd is None:
        raise ConfigError(f"topic {topic!r} is at {_names(topology)}: say which, by nsqd=")
    if len(found) > 1:
        numbers = ", ".join(str(each.partition) for each in found)
        raise ConfigError(f"{nsqd} leads partitions {numbers} of {topic!r}: give partition=")
    return found[0]


def _leader(topology: Topology, partition: int, nsqd: str | None) -> Target:
    topic = topology.topic
    if not topology.redesigned:
        raise OrderingNotSupported(
            f"topic {topic!r} is on an original NSQ, which has no partitions",
            hint="give nsqd= in place of partition=",
        )
    if partition >= topology.partition_num > 0:
        raise ConfigError(
            f"topic {topic!r} has {topology.partition_num} partitions, no {partition}"
        )
    for target in topology.targets:
        if target.partition == partition:
            if nsqd not in (None, target.name):
                raise DiscoveryError(
                    f"partition {partition} of {topic!r} is led by {target.name}, not by {nsqd}"
                )
            return target
    raise DiscoveryError(f"partition {partition} of {topic!r} has no leader at the moment")


def _names(topology: Topology) -> str:
    return ", ".join(dict.fromkeys(target.name for target in topology.targets))


class PullSubscription:
    """One connection to one nsqd, read in the caller's thread: it has no thread of its own.

    ::

        with nsqsmart.PullSubscription(address, "orders", "archive", partition=0) as source:
            while messages := source.pull(1000, timeout=2):
                store(messages)
                source.finish(messages)

    Between two calls no thread answers heartbeats: the server closes a connection that is not used
    for two heartbeat intervals. It belongs to one thread at a time; not to a forked child.

    Args:
        address: as for :class:`~nsqsmart.client.consuming.consumer.Consumer`.
        topic, channel: as there.
        partition: which one; needed where the topic has more than one (redesigned servers).
        nsqd: ``"host:port"`` as ``Admin.nodes()`` names it; needed where several have the topic
            (original servers).
        config: a :class:`~nsqsmart.config.ConsumerConfig` instead of the defaults.
        **options: any option of a Consumer by its name; those of handlers mean nothing here.
            ``max_in_flight`` is the first RDY; ``start_at`` counts for open() alone. There is no
            backoff, and nothing is given up.

    Raises:
        ConfigError, TypeError: an argument cannot be used. Nothing is dialled before open().
    """

    def __init__(
        self,
        address: str | None,
        topic: str,
        channel: str,
        *,
        partition: int | None = None,
        nsqd: str | None = None,
        config: ConsumerConfig | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._names = (check_topic(topic), check_channel(channel))
        if partition is not None:
            check_partition(partition)
        if nsqd is not None:
            nsqd = str(Address.parse(nsqd, _NSQD_PORT))
        self._where = (partition, nsqd)
        self._endpoint, self._config = resolve(ConsumerConfig, address, options, config=config)
        prepare_endpoint(self._endpoint)
        start = self._config.start_at
        self._start = None if start is None else position_text(start)
        self._assumed = Assumptions()
        self._rdy = self._config.max_in_flight
        self._line: PullConnection | None = None
        self._report: PullReport | None = None
        self._process = os.getpid()

    def open(self, timeout: float | None = None) -> Self:
        """Look up, dial, subscribe; pull() does it by itself the first time.

        Tries for *timeout* seconds, default ``dial_timeout`` plus ``handshake_timeout``: a leader
        that crashed is replaced after 20 to 30 s. Raises DiscoveryError (no lookup answers, no nsqd
        has the topic or leads the partition), ConnectError, SubscribeError and NotAuthorized (it is
        refused, and would be again), ConfigError and OrderingNotSupported (the topic is not as the
        options say), ClientClosed after drain().
        """
        self._check_process()
        if self._report is not None:
            raise ClientClosed("the PullSubscription was closed")
        if self._line is None:
            config = self._config
            patience = config.dial_timeout + config.handshake_timeout
            limit = patience if timeout is None else check_timeout(timeout)
            self._line = self._open(monotonic() + limit)
        return self

    def _open(self, deadline: float) -> PullConnection:
        endpoint = open_endpoint(self._endpoint)
        directory = Directory(endpoint, self._config, READ)
        topic, _ = self._names
        topology: Topology | None = None
        refused: list[Refused] = []
        pause = _FIRST_PAUSE
        while True:
            try:
                seen = topology.generation if topology else 0
                topology = directory.refresh(topic, seen, deadline, refused=refused)
                return self._subscribe(topology, deadline, refused)
            except NsqError as error:
                if self._is_final(error) or monotonic() + pause >= deadline:
                    if (told := self._as_told(error)) is error:
                        raise
                    raise told from error
            sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _as_told(self, error: NsqError) -> NsqError:
        """*error* as callers see it: an exception of nsqsmart.errors, not a server's code."""
        topic, channel = self._names
        known = permanent_error(error, topic, channel)
        if known is None and isinstance(error, ServerError):
            what = f"subscribing to {topic!r}/{channel!r}: {error}"
            return SubscribeError(what, code=error.code)
        return known or error

    def _is_final(self, error: NsqError) -> bool:
        """Whether to try again is of no use."""
        if isinstance(error, ServerError):
            return not (is_moved(error) or self._assumed.flip(error.code))
        if isinstance(error, ConnectError):
            return error.permanent
        return not isinstance(error, DiscoveryError)

    def _subscribe(
        self, topology: Topology, deadline: float, refused: list[Refused]
    ) -> PullConnection:
        config = self._config
        check_ordered(topology, config)
        target = choose_target(topology, *self._where)
        ordered = self._assumed.is_ordered(topology, config) and target.partition is not None
        greeting = greeting_for(config, extended=self._assumed.is_extended(topology))
        if self._start is not None:
            check_start(target)
        request = SubscribeRequest(*self._names, target, ordered, greeting, config)
        refused[:] = [Refused(target.partition, target.address)]
        connection = open_connection(target.address, greeting, deadline)
        try:
            check_connection(connection)
            connection.exchange(request.command(), deadline)
        except BaseException:
            connection.close()
            raise
        line = PullConnection(request, connection)
        if self._start is not None:
            try:
                line.gate = begin_at(line, self._start, config)
            except BaseException:
                line.close()
                raise
        return line

    def pull(self, max_messages: int = 1, timeout: float | None = None) -> list[Message]:
        """Take up to *max_messages*: as soon as one is there, with all that have come.

        Waits *timeout* seconds (None: until one comes), then the list is empty. Every message is
        yours: answer it before its ``deadline``, one by one or by finish() and requeue(). What has
        come and was not taken is kept for the next call, and expires like any other.

        Raises ConnectionLost when the connection ended or the leader moved: what was not answered
        by then is delivered again, to the next subscriber. NotAuthorized, SubscribeError and
        ProtocolError as the name says; ClientClosed after drain(); open()'s the first time.
        """
        count = check_count("max_messages", max_messages, 1)
        limit = None if timeout is None else check_timeout(timeout)
        line = self._use()
        line.set_rdy(self._rdy)
        if limit is not None:
            return line.take(count, monotonic() + limit)
        while not (found := line.take(count, monotonic() + self._config.heartbeat_interval)):
            line.watch()
        return found

    def set_rdy(self, count: int) -> int:
        """Let *count* messages be delivered and not answered; 0 stops deliveries.

        Before the FINs of the last window, or the server fills it again. Returns what holds: the
        server's ``max_rdy_count`` if that is less. Raises as pull().
        """
        self._rdy = check_count("rdy", count, 0)
        return self._use().set_rdy(self._rdy)

    def finish(self, messages: Sequence[Message]) -> int:
        """FIN of all of *messages*, in one send; returns how many were still in time.

        The server does not answer a FIN: what it refused is known for certain only from the
        report of drain(). Raises AlreadyResponded if one was answered before, ConfigError if one
        is another subscription's; nothing is sent then. A connection that is lost is no error
        here: 0 is returned.
        """
        return self._use().finish_all(messages)

    def requeue(self, messages: Sequence[Message], delay: float = 0.0) -> int:
        """REQ of all of *messages* after *delay* seconds, in one send; as :meth:`finish`.

        An ordered channel takes them back at once, whatever the delay.
        """
        check_delay(delay)
        return self._use().requeue_all(messages, delay)

    def touch(self, messages: Sequence[Message]) -> int:
        """Ask for a fresh ``msg_timeout`` for all of *messages*, in one send; as :meth:`finish`."""
        return self._use().touch_all(messages)

    def drain(self, timeout: float | None = None) -> PullReport:
        """End it: RDY 0, CLS, everything back that is not answered, and wait for the server.

        Within *timeout* seconds, default ``close_timeout``. Never raises for what the server does;
        ``report.confirmed`` says whether it has carried out all that was sent. Again: the same
        report.
        """
        self._check_process()
        limit = self._config.close_timeout if timeout is None else check_timeout(timeout)
        if self._report is None:
            line = self._line
            self._report = line.drain(monotonic() + limit) if line else PullReport(0, 0, 0)
        return self._report

    def close(self) -> PullReport:
        """End it at once, without a word: an original nsqd waits for ``msg_timeout`` then."""
        self._check_process()
        if self._report is None:
            if self._line:
                self._line.close()
            self._report = self._line.report() if self._line else PullReport(0, 0, 0)
        return self._report

    @property
    def in_flight(self) -> int:
        """Messages delivered and not answered, whether or not they were pulled yet."""
        return self._line.in_flight if self._line else 0

    @property
    def nsqd(self) -> str | None:
        """``"host:port"`` of the nsqd; None before open()."""
        return self._line.target.name if self._line else None

    @property
    def partition(self) -> int | None:
        """The partition; None before open(), and on an original nsqd."""
        return self._line.target.partition if self._line else None

    @property
    def ordered(self) -> bool:
        """Whether the server sends one message at a time; False before open()."""
        return self._line.request.ordered if self._line else False

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None or os.getpid() == self._process:
            self.drain()  # in a child it raises, and nothing hides what ends the child

    def __repr__(self) -> str:
        topic, channel = self._names
        return f"<PullSubscription {topic}/{channel} at {self.nsqd or self._endpoint}>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError(
            "a PullSubscription cannot be pickled: make it inside the function that uses it"
        )

    def _use(self) -> PullConnection:
        if self._line is None or self._report is not None or os.getpid() != self._process:
            self.open()
        assert self._line is not None  # noqa: S101 - open() gave one, or raised
        return self._line

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            if self._line:
                self._line.drop()
            raise UsedAfterFork("this PullSubscription belongs to the parent process: make another")
