"""One subscribed connection, on a thread of its own: dial, SUB, read until it ends.

A partition's thread dials for itself, so that one slow node delays no other partition.
"""

from __future__ import annotations

import logging
import os
import threading
from time import monotonic

from nsqsmart.client.messages.message import Holder, Message
from nsqsmart.client.shared.trace_log import Line
from nsqsmart.client.subscribing.consumer_runtime import ConsumerRuntime
from nsqsmart.client.subscribing.ordered_delivery import OrderedDelivery
from nsqsmart.client.subscribing.request import SubscribeRequest, check_connection
from nsqsmart.client.subscribing.start_position import ChannelPositions, Memory
from nsqsmart.config import ConsumerConfig
from nsqsmart.errors import ConnectionLost, NsqError, ServerError
from nsqsmart.net.cancel_scope import CancelScope
from nsqsmart.net.connection import Connection, open_connection
from nsqsmart.net.reader import Reader
from nsqsmart.net.threads import Thread, spawn
from nsqsmart.net.write_buffer import WriteBuffer
from nsqsmart.tracing import switch
from nsqsmart.wire import commands
from nsqsmart.wire.answers import FIN_FAILED, refused_id

log = logging.getLogger("nsqsmart")

_SILENT_INTERVALS = 2.5


class Subscription:
    """One connection's life; a lost one is replaced by a new Subscription."""

    def __init__(
        self,
        request: SubscribeRequest,
        runtime: ConsumerRuntime[Subscription],
        positions: ChannelPositions,
    ) -> None:
        self.request = request
        self.topic, self.channel, self.target = request.topic, request.channel, request.target
        self.write_buffer: WriteBuffer | None = None
        self.reader: Reader[Message] | None = None
        self.connection: Connection | None = None
        self.heard_at = monotonic()
        self.msg_timeout = 60.0
        self.max_msg_timeout = 900.0
        self.process = os.getpid()
        self.close_wait = threading.Event()
        self.ordering = OrderedDelivery(self, runtime) if request.ordered else None
        self._memory: Memory | None = None
        self._detailed = request.detailed
        self._runtime = runtime
        self._positions = positions
        self._abandoned = False
        self._strays: set[bytes] = set()
        self.scope = CancelScope()
        self._line: Line | None = None
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin on a thread of its own."""
        self._thread = spawn(f"reader-{self.target.address}-{self.target.partition}", self._run)

    def join(self, deadline: float) -> bool:
        """Wait for the thread; False if it still runs at *deadline*."""
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, deadline - monotonic()))
            return not self._thread.is_alive()
        return True

    def hang_up(self) -> None:
        """End it from any thread; the reader wakes and reports."""
        self._abandoned = True
        # While it is dialled there is only this to end it by.
        self.scope.cut()
        if self.write_buffer:
            self.write_buffer.break_off()

    @property
    def config(self) -> ConsumerConfig:
        """The consumer's options."""
        return self.request.config

    @property
    def ordered(self) -> bool:
        """Whether its messages come one by one."""
        return self.request.ordered

    @property
    def live(self) -> bool:
        """Whether it is subscribed and can be answered on."""
        return self.write_buffer is not None and not self.write_buffer.broken

    @property
    def in_flight(self) -> int:
        """Messages received and not answered yet."""
        if not (self.reader and self.write_buffer):
            return 0
        return max(0, self.reader.received - self.write_buffer.settled)

    @property
    def max_rdy(self) -> int:
        """The largest RDY this server takes."""
        return self.connection.grant.max_rdy_count if self.connection else 0

    @property
    def round_trip(self) -> float:
        """Seconds to the server and back."""
        return self.connection.transport.socket.round_trip if self.connection else 0.0

    def describe(self) -> str:
        """For logs."""
        partition = self.target.partition
        where = "" if partition is None else f" partition {partition}"
        return f"{self.topic}/{self.channel}{where} at {self.target.address}"

    def finish(self, message: Message) -> bool:
        """FIN, unless it is too late."""
        write_buffer = self.write_buffer
        late = monotonic() >= message._read_batch.deadline and message.expired
        if late or write_buffer is None or not write_buffer.ack(message.id):
            return self._too_late(message)
        if message._extras is not None and message._extras.life is not None:
            message._extras.life.note("finished")
        return True

    def requeue(self, message: Message, delay: float | None, *, backoff: bool) -> bool:
        """REQ; ordered: held here first, as the server ignores a delay (protocol#ordered-answers).

        The backoff hears of it before the server: sent back without a delay the message would be
        here again before RDY 0 is there.
        """
        if backoff:
            self._runtime.on_result(message, ok=False)
        if not self._may_answer(message):
            return self._too_late(message)
        if self.ordering:
            self.ordering.hold(message, delay, counts=backoff)
            return True
        config = self.request.config
        if delay is None:
            delay = config.default_requeue_delay * message.attempts
        self.send_requeue(message, min(max(0.0, delay), config.max_requeue_delay))
        return True

    def hold(self, message: Message) -> Holder[Message]:
        """Detach *message* from its handler, which no longer answers it."""
        self._runtime.checked_out.take(message)
        return self._runtime.checked_out

    def give_up(self, message: Message) -> bool:
        """Pass *message* on to the dead letters, then FIN."""
        return self._runtime.dead_letters.give_up(message)

    def forget(self, message: Message) -> None:
        """*message* has timed out and the server delivers it again: nothing is sent."""
        if self.write_buffer:
            self.write_buffer.forget()
        if self.live and message.expired:
            self._runtime.timeouts.note(message)
            if self.ordering:
                self.ordering.tell(message)
        if message._life is not None:
            message._life.note("timed_out" if message.expired else "lost")

    def stray(self, message: Message) -> None:
        """*message* is from before the start position: it stays in flight until it times out."""
        self.forget(message)
        self._strays.add(message.id)
        if self.write_buffer:
            self.write_buffer.strays = len(self._strays)
            self.write_buffer.flush(wait=False)

    def acknowledge(self, message: Message) -> None:
        """FIN, whether or not it is late."""
        if self.write_buffer:
            self.write_buffer.ack(message.id)

    def send_requeue(self, message: Message, delay: float) -> None:
        """REQ after *delay* seconds, now."""
        if self.write_buffer:
            if message._life is not None:
                # Before it leaves: it may be received again at once.
                message._life.note("requeued", delay)
            self.write_buffer.send(commands.req(message.id, round(delay * 1000)), settles=True)

    def touch(self, message: Message) -> bool:
        """TOUCH, unless it is too late."""
        if not self._may_answer(message):
            return False
        self.send_touch(message)
        return True

    def send_touch(self, message: Message) -> None:
        """TOUCH, now."""
        if self.write_buffer:
            self.write_buffer.send(commands.touch(message.id))
            if message._life is not None:
                message._life.note("touched")

    def close_politely(self) -> None:
        """RDY 0 and CLS: nothing new comes once the server has confirmed."""
        if self.write_buffer:
            self.write_buffer.rdy = 0
            self.write_buffer.send(commands.CLS)

    def send_all(self, deadline: float) -> None:
        """Send every answer that waits, before *deadline* (monotonic seconds)."""
        if self.write_buffer:
            self.write_buffer.drain(deadline)

    def watch(self, now: float) -> None:
        """End a connection that has been silent for 2.5 heartbeat intervals."""
        interval = self.request.config.heartbeat_interval
        if self.live and interval and now - self.heard_at > _SILENT_INTERVALS * interval:
            self.hang_up()

    def _may_answer(self, message: Message) -> bool:
        return self.live and not message.expired

    def _too_late(self, message: Message) -> bool:
        """False: the answer was not sent, for time is up or the connection gone."""
        self.forget(message)
        return False

    def _run(self) -> None:
        try:
            reason = self._live()
        except NsqError as error:
            reason = error
        except BaseException as error:
            # An application's callback, or a bug: it must not take the partition with it.
            log.exception("reading %s failed", self.describe())
            reason = ConnectionLost(f"reading {self.describe()} failed: {error!r}", sent=True)
        finally:
            if self.connection and not self.reader:
                self.connection.close()
        self.close_wait.set()
        if self._memory is not None and not self._detailed:
            self._memory.count(self.in_flight)
        self._runtime.on_ended(self, reason)

    def _live(self) -> NsqError:
        request, config = self.request, self.request.config
        self._positions.check(self.target)
        deadline = monotonic() + config.dial_timeout + config.handshake_timeout
        connection = open_connection(self.target.address, request.greeting, deadline, self.scope)
        self.connection = connection
        check_connection(connection)
        self.msg_timeout = connection.grant.msg_timeout
        self.max_msg_timeout = max(connection.grant.max_msg_timeout, self.msg_timeout)
        connection.exchange(request.command(), monotonic() + config.dial_timeout)
        self._memory = self._positions.settle(self)
        connection.transport.socket.block(config.write_timeout)
        write_buffer = WriteBuffer(connection.transport, self._runtime.on_dirty, self.max_rdy)
        self.reader = reader = Reader(
            connection, request.decoder(self, write_buffer.ack), write_buffer, self
        )
        self.write_buffer = write_buffer
        self.heard_at = monotonic()
        self._line = request.line(connection)
        if self._abandoned:
            write_buffer.break_off()
        self._runtime.on_subscribed(self)
        return reader.run()

    def on_messages(self, messages: list[Message]) -> None:
        """From the reader: hand over."""
        if self._line is not None and not switch.silent:
            self._line.begin(messages)
        if self._detailed and self._memory is not None:
            messages = self._memory.take(messages)
        if self.ordering is None:
            self._runtime.deliver(messages)
            return
        for message in messages:
            self.ordering.offer(message)

    def on_refusal(self, error: ServerError) -> None:
        """From the reader."""
        if self._detailed and self._memory is not None and error.code == FIN_FAILED:
            message_id = refused_id(error)
            if message_id is not None:
                self._memory.refuse(message_id)
        self._runtime.on_refusal(error)

    def on_close_wait(self) -> None:
        """From the reader."""
        self.close_wait.set()
