"""The subscription supervisor: one subscription for each target of the newest topology."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from random import uniform
from time import monotonic
from typing import NamedTuple, Protocol

from nsqsmart.client.shared.directory import Directory
from nsqsmart.client.shared.log_fields import LogThrottle, log_fields
from nsqsmart.errors import DiscoveryError
from nsqsmart.names import Address
from nsqsmart.net.threads import Thread, spawn
from nsqsmart.policy.answers.lookup import TopicState
from nsqsmart.policy.topology import Refused, Target, Topology

log = logging.getLogger("nsqsmart")

_FIRST_PAUSE = 0.1
_MAX_PAUSE_ORIGINAL = 60.0
# A crashed leader is replaced after 20 to 30 s (protocol#leader-switch): stay close.
_MAX_PAUSE_REDESIGNED = 2.0
# So long a subscription lasts, and at least as long as the pause before it, to count as a success.
_STEADY = 1.0
_LOOKUP_BUDGET = 10.0
_LONGEST_SLEEP = 3600.0
_AFTER_A_BUG = 1.0
_UNTIL_COMPLETE = 1.0
_TELL_MISSING_EVERY = 600.0

Place = int | Address


def subscription_key(target: Target) -> Place:
    """What there is one subscription of: a partition, or an original nsqd."""
    return target.address if target.partition is None else target.partition


class Supervised(Protocol):
    """A subscription, as far as the supervisor is concerned."""

    target: Target

    def start(self) -> None:
        """Begin to dial, in a thread of its own."""

    def hang_up(self) -> None:
        """End it."""


class _Failing(NamedTuple):
    times: int
    next_try: float
    address: Address
    pause: float


class _Begun(NamedTuple):
    """A subscription that the server took, and how often it had failed before."""

    at: float
    times: int
    pause: float


class SubscriptionSupervisor:
    """One thread: looks up, subscribes to what is new, dials again what was lost.

    *subscribe* makes a subscription, which is started here; the consumer reports its end by
    :meth:`lost`. Nothing here blocks on a dial: every subscription has a thread of its own.
    """

    def __init__(
        self,
        directory: Directory,
        topic: str,
        subscribe: Callable[[Target, Topology], Supervised],
    ) -> None:
        self._directory = directory
        self._topic = topic
        self._subscribe = subscribe
        self._changed = threading.Condition(threading.Lock())  # guards all below
        self._kept: dict[Place, Supervised] = {}
        self._failing: dict[Place, _Failing] = {}
        self._begun: dict[Place, _Begun] = {}
        self._refused: set[Refused] = set()
        self._look = True
        self._ask_again_at = 0.0
        self._closed = False
        self.topology: Topology | None = None
        self.failure: Exception | None = None
        self._missing = LogThrottle(_TELL_MISSING_EVERY)
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = spawn(f"supervisor-{self._topic}", self._run)

    def close(self, deadline: float) -> None:
        """End the thread; subscriptions are the consumer's to close."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._directory.abort()
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, deadline - monotonic()))

    def established(self, subscription: Supervised) -> None:
        """The server took the subscription: its failures are forgotten, if it lasts."""
        place = subscription_key(subscription.target)
        with self._changed:
            failing = self._failing.pop(place, None)
            known = (failing.times, failing.pause) if failing else (0, 0.0)
            self._begun[place] = _Begun(monotonic(), *known)

    def lost(self, subscription: Supervised, *, moved: bool) -> None:
        """A subscription ended; *moved*: look up again before the next try."""
        target = subscription.target
        place = subscription_key(target)
        with self._changed:
            if self._kept.get(place) is not subscription:
                return
            del self._kept[place]
            times = self._failures_before(place) + 1
            longest = _MAX_PAUSE_ORIGINAL if target.partition is None else _MAX_PAUSE_REDESIGNED
            pause = min(longest, _FIRST_PAUSE * 2.0 ** min(times - 1, 20))
            next_try = monotonic() + uniform(pause / 2, pause)  # noqa: S311
            self._failing[place] = _Failing(times, next_try, target.address, pause)
            if moved:
                self._look = True
                self._refused.add(Refused(target.partition, target.address))
            self._changed.notify_all()

    def _failures_before(self, place: Place) -> int:
        """How often in a row it had failed, as far as it is not forgotten.

        A server that takes every SUB and then ends the connection would be dialled without a pause.
        """
        if place in self._failing:
            return self._failing[place].times
        begun = self._begun.pop(place, None)
        if begun is None or monotonic() - begun.at >= max(_STEADY, begun.pause):
            return 0
        return begun.times

    def _run(self) -> None:
        while self._wait():
            try:
                self._look_up()
                self._reconcile()
            except Exception:
                # Without this thread nothing is ever dialled again: whatever it is, go on.
                log.exception(
                    "keeping the subscriptions of %s failed",
                    self._topic,
                    extra=log_fields(self._topic),
                )
                with self._changed:
                    self._changed.wait(_AFTER_A_BUG)

    def _wait(self) -> bool:
        """Wait until something is due; returns False once closed."""
        with self._changed:
            while not self._closed:
                now = monotonic()
                if self._look or self._next_due(now) <= now:
                    return True
                self._changed.wait(self._next_due(now) - now)
            return False

    def _next_due(self, now: float) -> float:
        # What is being dialled is not due: its end will be reported.
        times = [each.next_try for place, each in self._failing.items() if place not in self._kept]
        return min([self._poll_at(), now + _LONGEST_SLEEP, *times])

    def _poll_at(self) -> float:
        if self._is_incomplete():
            return self._ask_again_at
        return self._directory.due(self._topic)

    def _is_incomplete(self) -> bool:
        """Whether it is too early to wait for the next poll; to be called with the lock."""
        if self.topology is None or self.topology.lacks_leaders:
            return True
        # Its leader may be another one any moment.
        return any(isinstance(place, int) for place in self._failing)

    def _look_up(self) -> None:
        with self._changed:
            look, refused = self._look, set(self._refused)
            self._look = False
            self._refused.clear()
            now = monotonic()
            look = look or (self._is_incomplete() and now >= self._ask_again_at)
        deadline = now + _LOOKUP_BUDGET
        seen = self.topology.generation if self.topology else 0
        try:
            if look:
                self._ask_again_at = now + _UNTIL_COMPLETE
                topology = self._directory.refresh(self._topic, seen, deadline, refused=refused)
            else:
                topology = self._directory.get(self._topic, deadline)
        except DiscoveryError as error:
            self.failure = error
            return
        self.failure = None
        self.topology = topology
        self._tell_missing(topology)

    def _tell_missing(self, topology: Topology) -> None:
        """Log that there is nothing to subscribe to: when it begins, and then rarely."""
        if topology.targets:
            self._missing = LogThrottle(_TELL_MISSING_EVERY)
        elif self._missing.tell() is not None:
            known = topology.state is not TopicState.UNKNOWN
            log.warning(
                "%s; the consumer waits until there is something to subscribe to",
                f"no partition of topic {self._topic} has a leader"
                if known
                else f"no nsqlookupd knows topic {self._topic}",
                extra=log_fields(self._topic),
            )

    def _reconcile(self) -> None:
        topology = self.topology
        if topology is None:
            return
        wanted = {subscription_key(target): target for target in topology.targets}
        now = monotonic()
        moved: list[Supervised] = []
        due: list[tuple[Place, Target]] = []
        with self._changed:
            for place, target in wanted.items():
                kept = self._kept.get(place)
                failing = self._failing.get(place)
                # A new leader need not wait because the old one failed.
                same = failing is not None and failing.address == target.address
                if kept is None and not (same and failing and failing.next_try > now):
                    due.append((place, target))
                elif kept is not None and kept.target.address != target.address:
                    moved.append(kept)
            # The others are listed no more: nothing to dial until they are.
            self._failing = {
                place: each for place, each in self._failing.items() if place in wanted
            }
            self._begun = {place: each for place, each in self._begun.items() if place in wanted}
        for subscription in moved:
            subscription.hang_up()
        for place, target in due:
            self._begin(place, target, topology)

    def _begin(self, place: Place, target: Target, topology: Topology) -> None:
        with self._changed:
            if self._closed:
                return
        subscription = self._subscribe(target, topology)
        with self._changed:
            closed = self._closed
            # Kept before it starts: reported lost before that, it would be kept for ever.
            if not closed:
                self._kept[place] = subscription
        if closed:
            subscription.hang_up()
        try:
            subscription.start()
        except BaseException:
            # No thread could start: nothing will report its end.
            with self._changed:
                self._kept.pop(place, None)
            raise
