"""What runs inside a started Consumer: subscriptions, flow, workers, timers, and its end.

The order of the end is decisions#34: no new messages, workers finish or give back,
answers leave, then the sockets and threads end. Each step has what is left of one deadline.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from nsqsmart.client.consuming.rdy_controller import RdyController
from nsqsmart.client.consuming.timers import Rounds
from nsqsmart.client.consuming.workers import MakeDispatcher
from nsqsmart.client.messages.checked_out import CheckedOut, Timeouts
from nsqsmart.client.messages.dead_letters import DeadLetters
from nsqsmart.client.messages.message import Message
from nsqsmart.client.shared.directory import Directory
from nsqsmart.client.shared.log_fields import LogThrottle, log_fields, subscription_fields
from nsqsmart.client.shared.metrics import Health, make_meter
from nsqsmart.client.subscribing.ordered_delivery import report_violation
from nsqsmart.client.subscribing.request import (
    Assumptions,
    SubscribeRequest,
    check_ordered,
    greeting_for,
    is_mismatch,
    is_moved,
    permanent_error,
)
from nsqsmart.client.subscribing.start_position import ChannelPositions
from nsqsmart.client.subscribing.subscription import Subscription
from nsqsmart.client.subscribing.supervisor import Place, SubscriptionSupervisor, subscription_key
from nsqsmart.config import ConsumerConfig, Endpoint
from nsqsmart.errors import (
    ClientClosed,
    ConnectionLost,
    NotAuthorized,
    NsqError,
    ProtocolError,
    ServerError,
    SubscribeError,
)
from nsqsmart.net.cancel_scope import CancelScope
from nsqsmart.net.handshake import Greeting
from nsqsmart.net.http.lookup import READ
from nsqsmart.net.reader import RdyIgnored
from nsqsmart.net.ticker import Ticker
from nsqsmart.net.waiters import Waiter, new_waiter
from nsqsmart.net.write_buffer import WriteBuffer
from nsqsmart.policy.topology import Target, Topology

log = logging.getLogger("nsqsmart")

_CLOSE_WAIT = 1.0

# No acknowledgement waits longer than twice this, even if every worker is stuck (decisions#30).
_ACK_AGE = 0.005
# Seconds for which the first connections leave the others their shares: one that hangs keeps
# nothing from the others for longer.
_FIRST_SHARES = 1.0


@dataclass(frozen=True, slots=True)
class CloseReport:
    """How a close ended.

    ``finished``, ``requeued`` and ``failed`` count over the consumer's life; ``given_up`` of the
    finished ones went to ``on_giving_up`` or the dead letters, or were skipped; ``channels_lost``
    says how often the cluster has forgotten the channel of a partition; ``timed_out`` counts what
    was not answered in time, and is delivered again. ``abandoned`` holds the ids (16 bytes) of
    messages whose handlers still ran at the deadline: their answers are dropped, and the server
    delivers them again.
    """

    finished: int
    requeued: int
    failed: int
    abandoned: tuple[bytes, ...] = ()
    given_up: int = 0
    channels_lost: int = 0
    timed_out: int = 0

    @property
    def clean(self) -> bool:
        """Whether every handler ended in time."""
        return not self.abandoned


class RunningConsumer:
    """Everything that lives from start() to close() of one Consumer, in one process.

    *make_dispatcher* makes its dispatcher; *on_stop* is called, from any thread, when something
    ends it from inside.
    """

    def __init__(
        self,
        names: tuple[str, str],
        make_dispatcher: MakeDispatcher,
        endpoint: Endpoint,
        config: ConsumerConfig,
        dead_letters: DeadLetters,
        on_stop: Callable[[BaseException], None],
    ) -> None:
        self.topic, self.channel = names
        self.config = config
        self.dead_letters = dead_letters
        self._starting = Waiter()  # taken while a start is under way
        self.draining = False
        self.watching = False
        self.reached = False
        self.late_answers = 0
        self._refusals = LogThrottle()
        self.violations: Counter[int | None] = Counter()
        """Messages out of order, by partition."""
        self._on_stop = on_stop
        self._assumed = Assumptions()
        self._greetings: dict[bool, Greeting] = {False: greeting_for(config, extended=False)}
        # Guards the six below, late_answers, violations, draining.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._received_before = 0
        self.troubles: dict[Place, NsqError] = {}
        self.subscriptions: set[Subscription] = set()
        self._answered = 0
        self._shared_until = 0.0
        self._started = False
        self._lasting: dict[Place, LogThrottle] = {}
        self._first_error: SubscribeError | None = None
        self.directory = Directory(endpoint, config, READ, CancelScope())
        self.supervisor = SubscriptionSupervisor(self.directory, self.topic, self._subscribe)
        self.checked_out = CheckedOut(self._on_success)
        self.channel_positions = ChannelPositions(config)
        self.timeouts = Timeouts()
        self.dispatcher = make_dispatcher(self)
        self._rounds = Rounds(self, self.dispatcher)
        self.ticker = Ticker(f"ticker-{self.topic}", self._rounds.sweep, _ACK_AGE)
        self.rdy_controller = RdyController(self, self.dispatcher)
        self._meter = make_meter(config)

    def start(self) -> None:
        """Start every thread, and wait for the first answers to SUB, for ``dial_timeout`` at most.

        Raises SubscribeError when a server refuses for good, ConfigError or OrderingNotSupported
        when ``ordered=True`` does not fit the topic, ClientClosed when the drain was first. An
        unreachable lookup is no error.
        """
        # All threads begin before the drain, or none does.
        starting = new_waiter()
        try:
            with self._lock:
                if self.draining:
                    raise ClientClosed("the Consumer was closed")
                self._starting = starting
            self.dispatcher.start()
            self.ticker.start()
            self._rounds.start()
            self.supervisor.start()
        finally:
            starting.release()
        deadline = monotonic() + self.config.dial_timeout
        with self._lock:
            while not (self.draining or self._first_error or self._all_answered()):
                left = deadline - monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(left, 0.1))
            if self._first_error is not None:
                raise self._first_error
        if self.supervisor.topology:
            check_ordered(self.supervisor.topology, self.config)
        self._started = True

    def _all_answered(self) -> bool:
        topology = self.supervisor.topology
        if topology is None:
            return self.supervisor.failure is not None
        return self._answered >= len(topology.targets)

    def _subscribe(self, target: Target, topology: Topology) -> Subscription:
        ordered = self._assumed.is_ordered(topology, self.config) and target.partition is not None
        extended = self._assumed.is_extended(topology)
        if extended not in self._greetings:
            self._greetings[extended] = greeting_for(self.config, extended=extended)
        request = SubscribeRequest(
            self.topic, self.channel, target, ordered, self._greetings[extended], self.config
        )
        subscription = Subscription(request, self, self.channel_positions)
        with self._lock:
            first = not self._shared_until
            if first:
                self._shared_until = monotonic() + _FIRST_SHARES
            self.subscriptions.add(subscription)
        if first:
            self.ticker.at(self._shared_until, self.rdy_controller.expect)
        return subscription

    # What subscriptions tell.

    def on_subscribed(self, subscription: Subscription) -> None:
        """The server said OK to SUB."""
        log.info(
            "subscribed to %s", subscription.describe(), extra=subscription_fields(subscription)
        )
        self.supervisor.established(subscription)
        self._rounds.check_touches(subscription)
        with self._lock:
            self.reached = True
            self.troubles.pop(subscription_key(subscription.target), None)
            self._answered += 1
            self._changed.notify_all()
        if self.supervisor.topology:
            self.rdy_controller.expect(len(self.supervisor.topology.targets), self._shared_until)
        self.rdy_controller.add(subscription)

    def on_ended(self, subscription: Subscription, reason: NsqError) -> None:
        """Give its share to the others, and have it dialled again."""
        began = subscription.reader is not None
        flipped = isinstance(reason, ServerError) and self._assumed.flip(reason.code)
        error = permanent_error(reason, self.topic, self.channel)
        if not self.draining:
            self._log_end(subscription, reason, lasting=error is not None and not flipped)
        if began and self._meter is not None:
            self._meter.connection_closed(subscription.target.name, self._why(reason))
        with self._lock:
            self.troubles[subscription_key(subscription.target)] = reason
            self.subscriptions.discard(subscription)
            if subscription.reader:
                self._received_before += subscription.reader.received
            if not began and not flipped:
                self._answered += 1
                self._first_error = self._first_error or error
            self._changed.notify_all()
        self.rdy_controller.remove(subscription)
        # The next connection of an ordered partition waits until handlers have answered.
        self.checked_out.drop_expired()
        if isinstance(reason, RdyIgnored):
            # With workers that are stuck those of each connection would gather.
            self.dispatcher.drop(subscription)
        self.supervisor.lost(subscription, moved=is_moved(reason) or is_mismatch(reason))
        if isinstance(error, NotAuthorized):
            self._on_stop(error)

    def _log_end(self, subscription: Subscription, reason: NsqError, *, lasting: bool) -> None:
        """An ERROR where trying again will not help, but rarely: it is tried again all the same."""
        harmless = subscription.reader is not None and not isinstance(reason, ProtocolError)
        level = logging.INFO if harmless else logging.WARNING
        text = "%s ended: %s"
        # The first refusal is what start() raises.
        if lasting and self._started:
            told = self._lasting.setdefault(subscription_key(subscription.target), LogThrottle())
            level = logging.DEBUG if told.tell() is None else logging.ERROR
            text = "cannot subscribe to %s: %s; this will not pass by itself"
        log.log(
            level, text, subscription.describe(), reason, extra=subscription_fields(subscription)
        )

    def _why(self, reason: NsqError) -> str:
        """One of the reasons of :data:`nsqsmart.metrics.CLOSED`."""
        if self.draining:
            return "closed"
        return "lost" if isinstance(reason, ConnectionLost) else "error"

    def deliver(self, messages: list[Message]) -> None:
        """Give *messages* to the dispatcher."""
        if self.rdy_controller.resting:
            self.rdy_controller.wake()
        self.dispatcher.deliver(messages)

    def on_refusal(self, error: ServerError) -> None:
        """An answer came too late for the server; it will deliver the message again."""
        with self._lock:
            self.late_answers += 1
        if (times := self._refusals.tell()) is not None:
            about = log_fields(self.topic, channel=self.channel)
            text = "%s: %s (%d refused since the last line)"
            log.info(text, self.topic, error, times, extra=about)

    def on_dirty(self, write_buffer: WriteBuffer) -> None:
        """Acknowledgements wait: a worker out of work, or the ticker, will send them."""
        self.dispatcher.dirty.append(write_buffer)
        self.ticker.nudge()

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Have *call* made at *when* on the ticker."""
        self.ticker.at(when, call)

    def on_out_of_order(self, message: Message, before: tuple[int, int]) -> bool:
        """A message came out of order; returns whether to go on."""
        with self._lock:
            self.violations[message.partition] += 1
        return report_violation(message, before, self.config.on_order_violation)

    # What the dispatcher tells.

    def on_result(self, message: Message, *, ok: bool) -> None:
        """A result that may move the backoff."""
        self.rdy_controller.on_result(message, ok=ok)

    def _on_success(self, message: Message) -> None:
        if self.watching:
            self.on_result(message, ok=True)

    def on_fatal(self, error: BaseException) -> None:
        """A handler wants the process to end."""
        self._on_stop(error)

    # Flow.

    def pause(self, paused: bool) -> None:  # noqa: FBT001 - it is the only thing said
        """Send RDY 0 to every connection, or lift that."""
        self.rdy_controller.pause(paused)

    def set_max_in_flight(self, count: int) -> None:
        """Share out *count* from now on."""
        self.rdy_controller.set_max_in_flight(count)

    def is_starved(self) -> bool:
        """Whether handlers and callers hold nearly all of a connection's share."""
        return self.rdy_controller.is_starved()

    @property
    def order_violations(self) -> int:
        """Messages out of order, of all partitions."""
        return sum(self.violations.values())

    @property
    def received(self) -> int:
        """Messages that have come, over all connections there were."""
        with self._lock:
            readers = [each.reader for each in self.subscriptions]
            return self._received_before + sum(each.received for each in readers if each)

    def snapshot(self) -> list[Subscription]:
        """The subscriptions there are now."""
        with self._lock:
            return list(self.subscriptions)

    def begin_drain(self) -> None:
        """Stop deliveries: RDY 0 on every connection, no lookups, no dials.

        RDY 0 is first: workers give back what they have not begun with as soon as it drains, and
        what is given back under an open RDY comes again at once.
        """
        self.rdy_controller.stop()
        with self._lock:
            self.draining = True
        with self._starting:
            pass

    def drain(self, deadline: float) -> CloseReport:
        """End it before *deadline* (monotonic seconds)."""
        self.begin_drain()
        self.supervisor.close(deadline)
        subscriptions = self.snapshot()
        self._stop_deliveries(subscriptions, deadline)
        self.dispatcher.dismiss()
        abandoned = self.dispatcher.join(deadline)
        for message in abandoned:
            message._give_back()
        self.checked_out.give_back()
        for subscription in subscriptions:
            if subscription.ordering:
                # Heads that have failed since.
                subscription.ordering.release_held()
        self.dead_letters.close(deadline)
        # However many do not end, they are waited for together.
        patience = max(deadline, monotonic() + _CLOSE_WAIT)
        for subscription in subscriptions:
            subscription.send_all(patience)
        self.ticker.close(patience)
        left = {*self.snapshot(), *subscriptions}
        for subscription in left:
            subscription.hang_up()
        for subscription in left:
            subscription.join(patience)
        return self.report(tuple(message.id for message in abandoned))

    def _stop_deliveries(self, subscriptions: list[Subscription], deadline: float) -> None:
        """CLS, and wait for its answer: then nothing can reach the inbox after the last worker."""
        for subscription in subscriptions:
            if subscription.write_buffer:
                subscription.close_politely()
            else:
                # Still being dialled: not waited for.
                subscription.hang_up()
        busy = self.dispatcher.busy_readers()
        patience = min(deadline, monotonic() + _CLOSE_WAIT)
        for subscription in subscriptions:
            # A reader that runs a handler reads the answer when that has ended, which may last.
            until = deadline if subscription in busy else patience
            subscription.close_wait.wait(max(0.0, until - monotonic()))
            if subscription.ordering:
                subscription.ordering.release_held()

    def report(self, abandoned: tuple[bytes, ...] = ()) -> CloseReport:
        """The counts so far."""
        thread_counts, checked_out = self.dispatcher.thread_counts, self.checked_out
        return CloseReport(
            sum(counts.finished for counts in thread_counts) + checked_out.finished,
            sum(counts.requeued for counts in thread_counts) + checked_out.requeued,
            sum(counts.failed for counts in thread_counts),
            abandoned,
            self.dead_letters.given_up,
            self.channel_positions.channels_lost,
            self.timeouts.count,
        )

    def health(self) -> Health:
        """Its health as far as it knows; sends nothing to a server."""
        topology, failure = self.supervisor.topology, self.supervisor.failure
        live = {subscription_key(each.target) for each in self.snapshot() if each.live}
        reasons = [str(failure)] if failure else []
        targets = topology.targets if topology else ()
        if topology and not targets and not failure:
            reasons.append(f"no nsqd has topic {self.topic!r}")
        for target in targets:
            if (place := subscription_key(target)) not in live:
                where = target.name if target.partition is None else f"partition {target.partition}"
                reasons.append(f"{where}: {self.troubles.get(place, 'not subscribed yet')}")
        late = self.timeouts.reason(self.dispatcher.in_hand())
        reasons += [late] if late else []
        if self.rdy_controller.paused:
            reasons.append("paused")
        elif self.watching:
            reasons.append("backs off after failures")
        if not self.reached:
            return Health("discovering", tuple(reasons))
        if not live:
            return Health("failing", tuple(reasons))
        return Health("degraded" if reasons else "ready", tuple(reasons))
