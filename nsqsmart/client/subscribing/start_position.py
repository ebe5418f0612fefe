"""Where a consumer's channels stand: ``start_at``, and what a forgotten channel has skipped.

Both happen between SUB and the first RDY, on the thread of the partition's connection, over HTTP
with the nsqd that leads it.
"""

from __future__ import annotations

import logging
from collections import Counter
from time import monotonic
from typing import Protocol

from nsqsmart.client.messages.message import Message
from nsqsmart.client.shared.discovery import http_address
from nsqsmart.client.shared.log_fields import message_fields, subscription_fields
from nsqsmart.client.subscribing.ordered_delivery import OrderedDelivery
from nsqsmart.config import ClientConfig, ConsumerConfig
from nsqsmart.errors import ConnectError, ConnectionLost, DiscoveryError
from nsqsmart.net.cancel_scope import CancelScope
from nsqsmart.net.http.admin import AdminHttp
from nsqsmart.policy.answers.operations import Verdict, judge
from nsqsmart.policy.channel_positions import (
    ChannelPosition,
    Finding,
    Remembered,
    judge_position,
    parse_position,
)
from nsqsmart.policy.positions import Gate, gate_of, position_text
from nsqsmart.policy.topology import Target

log = logging.getLogger("nsqsmart")

_PATIENCE = 20.0
_CHECK_PATIENCE = 5.0
_CHECKS = 3
_FEW = 1024


class Placed(Protocol):
    """A subscription, as far as its channel's place is concerned."""

    topic: str
    channel: str
    target: Target

    @property
    def ordered(self) -> bool:
        """Whether its messages come one by one."""

    def describe(self) -> str:
        """For logs."""


class Replacing(Placed, Protocol):
    """One that replaces another when that is lost, and may be ended meanwhile."""

    ordering: OrderedDelivery | None
    scope: CancelScope


class Memory:
    """What this process knows of one partition, from one connection to the next.

    Only the reader of the partition's connection uses it; of that there is one at a time.
    """

    def __init__(self) -> None:
        self.begun = self.rewound = False
        self.gate: Gate | None = None
        self._ordering: OrderedDelivery | None = None
        self.failed_checks = 0
        self._finished = False
        self._open: dict[int, Message] = {}
        # Servers repeat messages: what counts is whether any copy of one was finished.
        self._copies: dict[int, list[Message]] = {}
        self._refused: Counter[bytes] = Counter()
        self._unnumbered = 0
        self._most = _FEW

    def take(self, messages: list[Message]) -> list[Message]:
        """*messages*, with offsets, were received; those that are no stragglers."""
        if self.gate is not None:
            messages = pass_gate(self.gate, messages)
            if self.gate.is_open:
                self.gate = None
        known = self._open
        for message in messages:
            offset = message.offset or 0
            before = known.get(offset)
            if before is not None:
                self._keep(offset, before)
            known[offset] = message
        if len(known) > self._most:
            self._forget_finished()
            self._most = max(_FEW, 2 * len(self._open))
        return messages

    def refuse(self, message_id: bytes) -> None:
        """The server has not taken a FIN of that message."""
        self._refused[message_id] += 1

    def hand_over(self, ordering: OrderedDelivery) -> None:
        """*ordering* belongs to a new connection: it waits for the messages of the one before."""
        before, self._ordering = self._ordering, ordering
        if before is not None:
            ordering.follow(before)

    def count(self, unfinished: int) -> None:
        """So many messages without offsets were not answered when the connection ended."""
        self._unnumbered = unfinished

    def remember(self) -> Remembered:
        """The messages that were received and not finished."""
        self._forget_finished()
        lowest = min(self._open, default=None)
        unfinished = len(self._open) or self._unnumbered
        return Remembered(lowest, unfinished, self._finished, self.rewound)

    def clear(self) -> None:
        """Forget everything: another process has the partition now."""
        for known in (self._open, self._copies, self._refused):
            known.clear()
        self._unnumbered = 0

    def _forget_finished(self) -> None:
        kept = {offset: each for offset, each in self._open.items() if not self._is_done(offset)}
        self._finished = self._finished or len(kept) < len(self._open)
        self._open = kept
        self._copies = {offset: each for offset, each in self._copies.items() if offset in kept}
        refused = {each.id: self._refused[each.id] for each in kept.values()}
        self._refused = Counter({name: count for name, count in refused.items() if count})

    def _keep(self, offset: int, before: Message) -> None:
        """*before* comes again; it is kept for as long as it is, or may yet be, finished."""
        copies = [*self._copies.get(offset, ()), before]
        self._copies[offset] = [
            each for each in copies if each.finished or not (each.answered or each._taken)
        ]

    def _is_done(self, offset: int) -> bool:
        """Whether more copies were finished than the server has refused to."""
        newest = self._open[offset]
        copies = (newest, *self._copies.get(offset, ()))
        finished = len([each for each in copies if each.finished])
        return finished > self._refused[newest.id]


class ChannelPositions:
    """One for each consumer. ``channels_lost`` counts what was skipped, set back or not."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._start = None if config.start_at is None else position_text(config.start_at)
        self._memories: dict[int, Memory] = {}
        self._lost: list[str] = []  # readers of several partitions append

    @property
    def channels_lost(self) -> int:
        """How often the cluster had forgotten the channel of a partition."""
        return len(self._lost)

    def check(self, target: Target) -> None:
        """Raise ConnectError where ``start_at`` means nothing."""
        if self._start is not None:
            check_start(target)

    def settle(self, stood: Replacing) -> Memory | None:
        """Before the first RDY: set the channel to ``start_at``, or read its position.

        None on an original nsqd. Raises what ends the connection, which is then tried again;
        ConnectError, permanent, if the nsqd will never take ``start_at``.
        """
        partition = stood.target.partition
        if partition is None:
            return None
        memory = self._memories.setdefault(partition, Memory())
        if self._start is not None and not memory.begun:
            memory.gate = begin_at(stood, self._start, self._config, stood.scope)
            memory.begun = True
        elif (known := memory.remember()).unfinished:
            self._compare(stood, memory, known)
        if stood.ordering is not None:
            memory.hand_over(stood.ordering)
        return memory

    def _compare(self, stood: Replacing, memory: Memory, known: Remembered) -> None:
        try:
            position = look(stood, self._config, _CHECK_PATIENCE, stood.scope)
        except DiscoveryError as error:
            memory.failed_checks += 1
            if memory.failed_checks < _CHECKS:
                raise
            log.error(  # noqa: TRY400 - nothing is wrong here
                "cannot tell whether %s still has its place: %s",
                stood.describe(),
                error,
                extra=subscription_fields(stood),
            )
            position = None
        if position is None:
            return
        memory.failed_checks = 0
        choice = str(self._config.on_channel_lost)
        finding = judge_position(known, position, ordered=stood.ordered, choice=choice)
        if finding is Finding.FINE:
            return
        self._lost.append(stood.describe())
        if finding is Finding.REWIND and known.lowest is not None:
            self._rewind(stood, memory, known.lowest, position)
        else:
            _tell(stood, known, position)
            memory.clear()

    def _rewind(
        self, stood: Replacing, memory: Memory, lowest: int, position: ChannelPosition
    ) -> None:
        log.error(
            "%s was forgotten by the cluster and made anew at offset %s: it is set back to %s, the "
            "first message that was not finished",
            stood.describe(),
            position.confirmed,
            lowest,
            extra=subscription_fields(stood),
        )
        text = f"virtual_queue:{lowest}"
        memory.gate = set_offset(stood, text, position, self._config, stood.scope)
        memory.rewound = True


def pass_gate(gate: Gate, messages: list[Message]) -> list[Message]:
    """The *messages* that *gate* lets in; the others are neither finished nor handled."""
    kept = []
    for message in messages:
        offset = message.offset or 0
        if gate.admits(offset, message.timestamp, message.attempts):
            kept.append(message)
            continue
        log.info(
            "%r was read before the channel was set elsewhere: it is dropped",
            message,
            extra=message_fields(message),
        )
        message._need_extras.taken = True
        if gate.is_early(offset):
            message._subscription.send_requeue(message, 0.0)
        else:
            message._subscription.stray(message)
    return kept


def check_start(target: Target) -> None:
    """Raise ConnectError where ``start_at`` means nothing."""
    if target.partition is None:
        raise ConnectError(
            f"start_at needs a redesigned nsqd: the channels of {target.name} have no offsets",
            permanent=True,
        )


def begin_at(
    stood: Placed, text: str, config: ClientConfig, scope: CancelScope | None = None
) -> Gate:
    """Set the channel to a position, written as servers do; see ChannelPositions.settle."""
    position = look(stood, config, _PATIENCE, scope)
    if position is None:
        raise ConnectionLost(f"{stood.describe()}: its nsqd does not know the channel", sent=True)
    return set_offset(stood, text, position, config, scope)


def look(
    stood: Placed, config: ClientConfig, patience: float, scope: CancelScope | None
) -> ChannelPosition | None:
    """Where the channel stands; raises DiscoveryError where there is no answer."""
    partition = stood.target.partition or 0
    query = (
        ("format", "json"),
        ("topic", stood.topic),
        ("partition", str(partition)),
        ("channel", stood.channel),
        ("needClients", "false"),
    )
    limit = config.response_timeout or patience
    with AdminHttp(limit, monotonic() + limit, scope) as http:
        server = http_address(stood.target.node, config)
        return parse_position(*http.get(server, "/stats", query), partition, stood.channel)


def set_offset(
    stood: Placed,
    text: str,
    position: ChannelPosition,
    config: ClientConfig,
    scope: CancelScope | None,
) -> Gate:
    """Let the channel go on at *text*; what it had read before is kept out by the gate."""
    query = (
        ("topic", stood.topic),
        ("partition", str(stood.target.partition)),
        ("channel", stood.channel),
    )
    limit = config.response_timeout or _PATIENCE
    with AdminHttp(limit, monotonic() + limit, scope) as http:
        server = http_address(stood.target.node, config)
        verdict, said = judge(*http.post(server, "/channel/setoffset", query, text.encode()))
    if verdict is not Verdict.DONE:
        what = f"{stood.describe()} cannot be set to {text}: {said}"
        if verdict is Verdict.FAILED:
            raise ConnectError(what, permanent=True)
        raise ConnectionLost(what, sent=True)
    log.info("%s is set to %s", stood.describe(), text, extra=subscription_fields(stood))
    return gate_of(text, position.start, position.end, ordered=stood.ordered)


def _tell(stood: Replacing, known: Remembered, position: ChannelPosition) -> None:
    others = position.clients - 1
    log.error(
        "%s has gone on to offset %s, and %s of its messages were delivered and not finished "
        "(from offset %s): the cluster has forgotten the channel and skipped them%s",
        stood.describe(),
        position.confirmed,
        known.unfinished,
        "unknown" if known.lowest is None else known.lowest,
        f", unless one of {others} other consumers has finished them" if others > 0 else "",
        extra=subscription_fields(stood),
    )
