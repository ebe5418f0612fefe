"""The one connection of a PullSubscription: what it holds, and what it has said of it."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from time import monotonic

from nsqsmart.client.messages.message import Holder, Message
from nsqsmart.client.pulling.unacked import PullReport, Unacked
from nsqsmart.client.shared.log_fields import LogThrottle, subscription_fields
from nsqsmart.client.subscribing.request import SubscribeRequest, permanent_error
from nsqsmart.client.subscribing.start_position import pass_gate
from nsqsmart.errors import ConnectionLost, NsqError, ServerError
from nsqsmart.net.connection import Connection
from nsqsmart.net.pull_reader import PullReader
from nsqsmart.net.reader import ignores_rdy
from nsqsmart.policy.positions import Gate
from nsqsmart.policy.surplus import Surplus
from nsqsmart.wire import commands
from nsqsmart.wire.answers import refused_id

log = logging.getLogger("nsqsmart")

# Heartbeats wait in a socket that no thread reads: look so often, even where messages wait.
_LOOK_EVERY = 1.0
_SILENT_INTERVALS = 2.5


class PullConnection:
    """One subscribed connection, used by one thread."""

    ordering = None

    def __init__(self, request: SubscribeRequest, connection: Connection) -> None:
        self.request = request
        self.topic, self.channel, self.target = request.topic, request.channel, request.target
        grant = connection.grant
        self.msg_timeout = grant.msg_timeout
        self.max_msg_timeout = max(grant.max_msg_timeout, grant.msg_timeout)
        self.max_rdy = grant.max_rdy_count
        self.process = os.getpid()
        self.heard_at = monotonic()
        self._reader = PullReader(
            connection, request.decoder(self), self, request.config.write_timeout
        )
        self._line, self._unacked = request.line(connection), Unacked()
        self._refusals, self._timeouts, self._timed_out = LogThrottle(), LogThrottle(), 0
        self.gate: Gate | None = None
        self._rdy, self._waiting = 0, list[Message]()
        self._asked, self._surplus = 0, Surplus(grant.msg_timeout)
        self._strays: set[bytes] = set()
        self._confirmed = self._closed = False
        self._end: NsqError | None = None

    @property
    def ordered(self) -> bool:
        """Whether its messages come one by one."""
        return self.request.ordered

    @property
    def live(self) -> bool:
        """Whether it can be answered on."""
        return self._end is None

    @property
    def in_flight(self) -> int:
        """Messages delivered and not answered."""
        return len(self._unacked.held) + len(self._waiting)

    def describe(self) -> str:
        """For errors."""
        where = "" if self.target.partition is None else f" partition {self.target.partition}"
        return f"{self.topic}/{self.channel}{where} at {self.target.address}"

    # ------------------------------------------------------------------------------ messages

    def set_rdy(self, count: int) -> int:
        """Ask for so many messages in flight, or the most that the server takes; returns that."""
        self._check()
        wanted = min(count, self.max_rdy)
        if wanted != self._rdy and not self._ask(wanted):
            self._check()
        self._rdy = wanted
        return wanted

    def take(self, most: int, deadline: float) -> list[Message]:
        """Up to *most* messages: as soon as one is there, with all that have come."""
        self._check()
        now = monotonic()
        if self._waiting and self._waiting[0].deadline <= now:
            self._waiting = self._unacked.without_expired(self._waiting, now)
            self._tell_expired()
        if len(self._waiting) < most:
            self._gather(most, 0.0 if self._waiting else deadline)
        elif now >= self.heard_at + _LOOK_EVERY:
            self._gather(len(self._waiting) + 1, 0.0)
        taken = self._waiting[:most]
        self._unacked.held.update(
            taken
        )  # first: an interrupt leaves none that drain() does not see
        self._waiting = self._waiting[most:]
        for message in taken:
            if message._extras is not None and message._life is not None:
                message._life.note("started")
        return taken

    def watch(self) -> None:
        """End a connection that has been silent for 2.5 heartbeat intervals."""
        interval = self.request.config.heartbeat_interval
        if monotonic() - self.heard_at > _SILENT_INTERVALS * interval:
            self._fail(ConnectionLost(f"{self.describe()} has gone silent", sent=True))

    def _gather(self, most: int, deadline: float) -> None:
        """Wait until a message is there, and read all that has come then."""
        until = deadline
        pull_reader = self._reader
        try:
            with pull_reader.whole():
                while len(self._waiting) < most and (found := self._receive(until)) is not None:
                    self._admit(found)
                    if self._waiting:
                        until = 0.0
                    elif monotonic() >= deadline:
                        return  # a server that sends heartbeats without end is not read for ever
        except NsqError as error:
            self._fail(error)
            self._check()

    def _receive(self, deadline: float) -> list[Message] | None:
        """Read as the PullReader does; raises ProtocolError too if the server ignores RDY."""
        heard_at, before = self.heard_at, self.in_flight
        found = self._reader.receive(deadline)
        unanswered = before + len(found or ())
        if unanswered > self._asked and self._surplus.is_too_much(
            self._asked, before, unanswered, heard_at, self.heard_at
        ):
            raise ignores_rdy(self.target.address, self._asked, unanswered)
        return found

    def _admit(self, messages: list[Message]) -> None:
        self._line.begin(messages)
        if self.gate is not None and not self.gate.is_open:
            messages = pass_gate(self.gate, messages)
        if self.request.ordered:
            messages = self._unacked.in_order(messages, self._waiting, self.request.config)
        self._waiting += messages

    # ------------------------------------------------------------------------------- answers

    def finish_all(self, messages: Sequence[Message]) -> int:
        """FIN of all of *messages* that are in time, in one piece; returns how many."""
        fresh = self._release(messages)
        if not fresh or not self._say(commands.fins(self._unacked.ids(fresh))):
            return 0
        for message in fresh:
            message._answer = True
            if message._extras is not None and message._life is not None:
                message._life.note("finished")
        self._unacked.finished += len(fresh)
        return len(fresh)

    def requeue_all(self, messages: Sequence[Message], delay: float) -> int:
        """REQ of all of *messages* that are in time, in one piece; returns how many."""
        fresh = self._release(messages)
        for message in fresh:
            if message._life is not None:
                # Before it leaves: it may be received again at once.
                message._life.note("requeued", delay)
        # With a delay an ordered channel would keep it in flight (protocol#ordered-answers).
        late = 0 if self.request.ordered else round(delay * 1000)
        reqs = b"".join([commands.req(each, late) for each in self._unacked.ids(fresh)])
        if not reqs or not self._say(reqs):
            return 0
        self._unacked.requeued += len(fresh)
        return len(fresh)

    def _release(self, messages: Sequence[Message]) -> list[Message]:
        """The *messages* that can be answered now."""
        fresh = self._unacked.release(messages, self)
        self._tell_expired()
        return fresh

    def _tell_expired(self) -> None:
        """Log of what was not answered in time, at once and then rarely."""
        count = self._unacked.expired - self._timed_out
        self._timed_out += count
        if count and (times := self._timeouts.tell(count)) is not None:
            log.warning(
                "%s: messages were not answered within %.3g s of their delivery, or of a touch, "
                "and the server delivers them again (%d such since the last line)",
                self.describe(),
                self.msg_timeout,
                times,
                extra=subscription_fields(self),
            )

    def touch_all(self, messages: Sequence[Message]) -> int:
        """TOUCH of all of *messages* that are in time, in one piece; returns how many."""
        chosen = self._unacked.choose(messages, self)
        now = monotonic()
        fresh = [each for each in messages if each in chosen and each.deadline > now]
        if not fresh or not self._say(b"".join([commands.touch(each.id) for each in fresh])):
            return 0
        for message in fresh:
            message._extend()
            if message._life is not None:
                message._life.note("touched")
        return len(fresh)

    # ----------------------------------------------------------------- what one message asks for

    def finish(self, message: Message) -> bool:
        """FIN, unless it is too late."""
        return message in self._unacked.held and self.finish_all((message,)) > 0

    def requeue(self, message: Message, delay: float | None, *, backoff: bool) -> bool:  # noqa: ARG002 - a message has it
        """REQ, unless it is too late."""
        config = self.request.config
        if delay is None:
            delay = min(config.default_requeue_delay * message.attempts, config.max_requeue_delay)
        return message in self._unacked.held and self.requeue_all((message,), delay) > 0

    def touch(self, message: Message) -> bool:
        """TOUCH, unless it is too late."""
        return message in self._unacked.held and self.touch_all((message,)) > 0

    def send_requeue(self, message: Message, delay: float) -> None:
        """REQ, now."""
        self._say(commands.req(message.id, round(delay * 1000)))

    def hold(self, message: Message) -> Holder[Message]:
        """Raise RuntimeError: a pulled message has no handler to detach from."""
        raise RuntimeError(f"{message!r} was pulled: it has no handler to detach from")

    def forget(self, message: Message) -> None:
        """Do nothing: an expired message gets no answer."""
        self._unacked.held.discard(message)

    def stray(self, message: Message) -> None:
        """Drop *message* without an answer: it counts as in flight until it times out."""
        self._unacked.held.discard(message)
        self._strays.add(message.id)
        self._ask(self._rdy)

    def give_up(self, message: Message) -> bool:
        """FIN: the caller that pulled it decides."""
        return message.finish()

    def drain(self, deadline: float) -> PullReport:
        """Send RDY 0, requeue unanswered messages, send CLS, and wait for the server's close."""
        if self.live:
            try:
                self._reader.send(commands.rdy(0) + commands.CLS)
                with self._reader.whole():
                    while not self._confirmed and (found := self._receive(deadline)) is not None:
                        self._waiting += found
                self._unacked.held.update(self._waiting)
                self._waiting = []
                back = [*self._unacked.held]
                self.requeue_all(back, 0.0)
                for message in back:
                    message._need_extras.taken, message._answer = True, None
                self._closed = self._reader.read_to_end(deadline)
            except NsqError as error:
                self._fail(error)
            self.close()
        return self.report()

    def close(self) -> None:
        """End it as it is."""
        self._fail(ConnectionLost(f"{self.describe()} was closed", sent=True))

    def drop(self) -> None:
        """Close the descriptor alone (in a forked child)."""
        self._reader.drop()

    def report(self) -> PullReport:
        """The counts so far."""
        return self._unacked.report(confirmed=self._closed)

    def on_refusal(self, error: ServerError) -> None:
        """Called by the PullReader."""
        if not self._unacked.refuse(refused_id(error)):
            return
        if (times := self._refusals.tell()) is not None:
            text = "%s: %s (%d refused since the last line)"
            log.info(text, self.describe(), error, times, extra=subscription_fields(self))

    def on_close_wait(self) -> None:
        """Called by the PullReader."""
        self._confirmed = True

    def _ask(self, wanted: int) -> bool:
        """RDY, with room for what was dropped without an answer: the server counts it."""
        count = min(wanted + len(self._strays), self.max_rdy) if wanted else 0
        self._asked = max(self._asked, count)
        return self._say(commands.rdy(count))

    def _say(self, data: bytes) -> bool:
        """Send *data*; False if the connection is gone."""
        if self._end is None:
            try:
                self._reader.send(data)
            except NsqError as error:
                self._fail(error)
        return self._end is None

    def _fail(self, error: NsqError) -> None:
        """End the connection because of *error*; the server delivers the held messages again."""
        if self._end is not None:
            return
        self._end = _as_told(error, self)
        self._unacked.lost += self.in_flight
        for message in self._unacked.held:
            message._need_extras.taken = True
            if message._life is not None:
                message._life.note("lost")
        self._unacked.held = set()
        self._waiting = []
        self._reader.close()

    def _check(self) -> None:
        if self._end is not None:
            raise self._end


def _as_told(error: NsqError, line: PullConnection) -> NsqError:
    """*error* as callers see it: a server's code is a reason, and no error of its own."""
    if not isinstance(error, ServerError):
        return error
    reason = f"{line.describe()} was ended by its nsqd: {error}"
    told = permanent_error(error, line.topic, line.channel) or ConnectionLost(reason, sent=True)
    told.__cause__ = error
    return told
