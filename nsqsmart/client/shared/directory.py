"""The current topology of every topic, refreshed on use and in single flight."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection
from functools import partial
from random import uniform
from time import monotonic
from weakref import ref

from nsqsmart.client.shared.discovery import Discovery
from nsqsmart.client.shared.log_fields import log_fields
from nsqsmart.client.shared.metrics import Meter, make_meter
from nsqsmart.config import ClientConfig, Endpoint
from nsqsmart.errors import DiscoveryError
from nsqsmart.metrics import Figure
from nsqsmart.names import Address
from nsqsmart.net.cancel_scope import CancelScope
from nsqsmart.net.http.lookup import WRITE, Access
from nsqsmart.net.threads import Thread, spawn
from nsqsmart.net.waiters import Waiter, new_waiter, wait_for, wake
from nsqsmart.policy.answers.lookup import Node, TopicState
from nsqsmart.policy.topology import Refused, Topology, direct, merge

log = logging.getLogger("nsqsmart")

_LONGEST = 60.0  # seconds between two polls that fail

_POLL_ORIGINAL = 60.0
_POLL_REDESIGNED = 20.0


class Entry:
    """The topology of one topic, and the callers that wait for a newer one.

    A lookup under way is known by a weak reference to the waiter of the call that makes it: an
    interrupted lookup is over, even if it could not say so.
    """

    __slots__ = (
        "asked_at",
        "doubted",
        "failure",
        "failures",
        "flight",
        "landed",
        "led",
        "needed",
        "refused",
        "stale_at",
        "told_at",
        "topology",
        "waiting",
    )

    def __init__(self) -> None:
        self.topology: Topology | None = None
        self.failure = ""
        self.failures = 0
        self.refused: set[Refused] = set()
        self.doubted: set[Refused] = set()
        self.needed = False
        """Whether an error has proved the topology wrong, and no lookup was asked since."""
        self.flight: ref[Waiter] | None = None
        self.landed = 0
        self.led: dict[int, Address] = {}  # the last leaders seen
        self.waiting: set[Waiter] = set()
        self.asked_at = -3600.0
        self.stale_at = 0.0
        self.told_at = 0.0

    @property
    def flying(self) -> bool:
        """Whether the lookups are being asked."""
        return self.flight is not None and self.flight() is not None

    @property
    def serves(self) -> bool:
        """Whether there is a topology that calls can use, old as it may be."""
        topology = self.topology
        usable = topology is not None and topology.state is TopicState.FOUND
        return usable and not self.needed and bool(topology and topology.targets)

    def mistrust(self, refused: Refused | None, *, lost: bool) -> None:
        """The topology is wrong: an error has proved it of *refused*, or a leader is missing.

        *lost*: it does not even answer.
        """
        if refused:
            self.refused.add(refused)
            if lost:
                self.doubted.add(refused)
        targets = self.topology.targets if self.topology else ()
        if refused is None or refused in {(each.partition, each.address) for each in targets}:
            # Else a newer topology is there already.
            self.needed = True
            self.stale_at = 0.0

    def land(self, topology: Topology, now: float, interval: float) -> None:
        """The lookups have answered."""
        self.topology = topology
        self.refused.clear()
        self.failures = 0
        self._landed("", now + interval)

    def may_tell(self, now: float) -> bool:
        """Whether to log that they have not: when it begins, and then rarely."""
        tell = not self.failure or now >= self.told_at + _LONGEST
        if tell:
            self.told_at = now
        return tell

    def fail(self, failure: str, now: float, interval: float) -> None:
        """The lookups failed: the old topology stays in use, and is renewed less and less often."""
        doublings = min(self.failures, 10)
        self.failures += 1
        self._landed(failure, now + max(interval, min(_LONGEST, interval * 2.0**doublings)))

    def _landed(self, failure: str, stale_at: float) -> None:
        self.stale_at = stale_at
        self.failure = failure
        self.doubted.clear()
        self.needed = False

    def note_leaders(self, topology: Topology) -> int:
        """How many partitions have another leader than they were last seen to have."""
        now = {number: node.address for number, node in topology.leaders.items()}
        moved = sum(self.led.get(number, leader) != leader for number, leader in now.items())
        self.led |= now
        return moved


class Beside:
    """The background threads of one client; none is started before there is work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the one below
        self._threads: tuple[Thread, ...] = ()

    def do(self, name: str, call: Callable[[], object]) -> bool:
        """Run *call* in a thread; False if none can start, as in a process that ends."""
        try:
            thread = spawn(name, call)
        except RuntimeError:
            return False
        with self._lock:
            self._threads = (*(each for each in self._threads if each.is_alive()), thread)
        return True

    def join(self, seconds: float) -> None:
        """Wait at most *seconds* until the threads have ended."""
        until = monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - monotonic()))


class Directory:
    """Keeps one immutable :class:`Topology` per topic.

    A refresh is single flight: other callers wait for its result. When every lookup fails, the
    last good topology stays in use. A producer's topology that is merely old is renewed on a
    transient thread, so that a lookup that hangs delays no publish.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        config: ClientConfig,
        access: Access,
        scope: CancelScope | None = None,
    ) -> None:
        self._config = config
        self._access = access
        self._scope = scope
        self._direct = () if endpoint.discovers else endpoint.addresses
        self._meter: Meter | None = make_meter(config)
        asks = endpoint.discovers
        self.discovery = Discovery(endpoint, config, scope, self._meter) if asks else None
        self._lock = threading.Lock()  # guards the entries
        self._entries: dict[str, Entry] = {}
        self._closed = False
        self.beside = Beside()
        self._nodes: tuple[Node, ...] = ()
        self.on_gone: Callable[[frozenset[Address]], None] = lambda _: None
        """Told of nsqds that no topic is on any more."""

    def get(self, topic: str, deadline: float) -> Topology:
        """Return the topology of *topic*: the known one if there is one, else from the lookups.

        The first caller after the poll interval has it refreshed, beside the calls that go on with
        the old one; where an error has proved that wrong, the caller itself asks. Raises
        DiscoveryError when the topology is unknown and no lookup answers.
        """
        known = self.known(topic)
        if known is not None:
            return known
        entry = self._entries.get(topic)
        seen = entry.topology.generation if entry and entry.topology else 0
        if entry and entry.topology and entry.serves and self._access is WRITE:
            self._refresh_beside(topic, entry, seen)
            return entry.topology
        return self.refresh(topic, seen, deadline, wait=not seen)

    def _refresh_beside(self, topic: str, entry: Entry, seen: int) -> None:
        """Renew the topology on a thread; if none can start, the old one stays in use."""
        waiter, begun = new_waiter(), False
        try:
            if self._may_fly(entry, waiter, seen, 0.0, wait=False):
                # Half of it is for asking.
                deadline = monotonic() + 2 * self._config.lookupd_request_timeout
                fly = partial(self._fly_and_leave, topic, entry, waiter, deadline)
                begun = self.beside.do(f"lookup-{topic}", fly)
                if not begun:
                    shortest = self._config.lookupd_min_refresh_interval
                    entry.stale_at = monotonic() + shortest
        finally:
            # An interrupt may come before the thread runs; it would then keep the waiter for ever.
            if not begun:
                self._leave(entry, waiter)

    def _fly_and_leave(self, topic: str, entry: Entry, waiter: Waiter, deadline: float) -> None:
        try:
            self._fly(topic, entry, deadline)
        finally:
            self._leave(entry, waiter)

    def known(self, topic: str, now: float | None = None) -> Topology | None:
        """The topology of *topic*, or None if the caller has to ask the lookups."""
        entry = self._entries.get(topic)
        if entry is None:
            return None
        if now is None:
            now = monotonic()
        if now >= entry.stale_at and not entry.flying:
            return None
        return entry.topology

    def refresh(
        self,
        topic: str,
        seen: int,
        deadline: float,
        *,
        refused: Collection[Refused] = (),
        wait: bool = True,
    ) -> Topology:
        """A topology newer than generation *seen*.

        *refused* are leaders an error has proved wrong. The lookups are asked at most once per
        ``lookupd_min_refresh_interval``; with *wait* False the old topology comes back instead of
        a wait. If the lookups fail, the old one comes back; raises DiscoveryError without one.
        """
        if self._direct:
            known = self._entries.setdefault(topic, Entry())
            known.topology = known.topology or direct(topic, self._direct)
            known.stale_at = math.inf
            return known.topology
        entry = self._entries.setdefault(topic, Entry())
        with self._lock:
            entry.refused.update(refused)
        waiter = new_waiter()
        try:
            if self._may_fly(entry, waiter, seen, deadline, wait=wait):
                self._fly(topic, entry, deadline)
        finally:
            # Twice if an interrupt comes in between: a caller that keeps its traceback keeps it.
            try:
                self._leave(entry, waiter)
            except BaseException:
                self._leave(entry, waiter)
                raise
        if entry.topology is None:
            # A new error: that of the lookup holds the stack of its caller, and all it refers to.
            raise DiscoveryError(entry.failure or f"no lookup answered for topic {topic!r} in time")
        return entry.topology

    def pause(self, topic: str, seen: int, seconds: float) -> None:
        """Wait *seconds*, but only until a topology newer than generation *seen* is there."""
        entry = self._entries.setdefault(topic, Entry())
        until, waiter = monotonic() + seconds, new_waiter()
        try:
            while not self._closed and (left := until - monotonic()) > 0:
                with self._lock:
                    if entry.topology and entry.topology.generation > seen:
                        return
                    entry.waiting.add(waiter)
                wait_for(waiter, left)
        finally:
            self._leave(entry, waiter)

    def close(self) -> None:
        """End every pause, and every wait for a lookup."""
        self._closed = True
        for entry in list(self._entries.values()):
            with self._lock:
                waiting, entry.waiting = entry.waiting, set()
            for each in waiting:
                wake(each)

    def abort(self) -> None:
        """End every lookup under way, and let none begin; from any thread."""
        self._closed = True
        if self._scope:
            self._scope.cut()

    def doubt(self, topic: str, refused: Refused | None, *, lost: bool = True) -> None:
        """The next call looks up, whatever becomes of this: *refused* was proved wrong.

        None is a leader that is missing. *lost*: it does not answer; no call tries it before.
        """
        with self._lock:
            entry = self._entries.get(topic)
            if entry and not self._direct:
                entry.mistrust(refused, lost=lost)

    def is_doubted(self, topic: str, partition: int, address: Address) -> bool:
        """Whether there is such a doubt, and the lookups have not been asked since.

        When they do not answer, the old topology stays in use.
        """
        entry = self._entries.get(topic)
        if entry is None or not entry.doubted:
            return False
        return Refused(partition, address) in entry.doubted

    def _may_fly(
        self, entry: Entry, waiter: Waiter, seen: int, deadline: float, *, wait: bool
    ) -> bool:
        """Wait for a lookup under way, or be told to make one, for which *waiter* then stands."""
        landed = entry.landed
        while True:
            with self._lock:
                now = monotonic()
                if self._closed or (entry.topology and entry.topology.generation > seen):
                    return False
                allowed = entry.asked_at + self._config.lookupd_min_refresh_interval
                if not entry.flying and now >= allowed:
                    entry.flight = ref(waiter)
                    entry.asked_at = now
                    return True
                if entry.landed > landed or now >= deadline or (not wait and entry.topology):
                    return False
                until = deadline if entry.flying else min(allowed, deadline)
                entry.waiting.add(waiter)
            wait_for(waiter, until - now)

    def _leave(self, entry: Entry, waiter: Waiter) -> None:
        """Wait no longer; if it was the call of *waiter* that looked up, wake the others."""
        waiting: set[Waiter] = set()
        with self._lock:
            entry.waiting.discard(waiter)
            if entry.flight and entry.flight() is waiter:
                entry.flight = None
                entry.landed += 1
                waiting, entry.waiting = entry.waiting, waiting
        for each in waiting:
            wake(each)

    def _fly(self, topic: str, entry: Entry, deadline: float) -> None:
        topology: Topology | None = None
        failure = ""
        before = entry.topology
        try:
            topology = self._ask(topic, entry, deadline)
        except DiscoveryError as error:
            failure = str(error)
            if not self._closed and entry.may_tell(monotonic()):
                # Its words: handlers keep what they are given; an error knows the caller's stack.
                log.warning(
                    "lookup of topic %s failed: %s", topic, failure, extra=log_fields(topic)
                )
        with self._lock:
            if topology:
                entry.land(topology, monotonic(), _interval(topology, self._config))
            else:
                # Not at once: a caller that polls would do nothing else.
                entry.fail(failure, monotonic(), self._config.lookupd_min_refresh_interval)
        if before and topology:
            self._tell_gone(before, topology)
        if topology and self._meter is not None and (moved := entry.note_leaders(topology)):
            self._meter.leaders_changed(topic, moved)

    def _tell_gone(self, before: Topology, now: Topology) -> None:
        if gone := _addresses(before) - _addresses(now):
            self.on_gone(gone.difference(*map(_addresses, self.topologies().values())))

    def _ask(self, topic: str, entry: Entry, deadline: float) -> Topology:
        assert self.discovery is not None  # noqa: S101 - direct addresses never get here
        answers = self.discovery.topic(topic, self._access, deadline)
        # A consumer has its connections; a producer has only the topology.
        refused, keeps = frozenset(entry.refused), self._access is WRITE
        return merge(topic, answers, entry.topology, now=monotonic(), refused=refused, keeps=keeps)

    def nodes_for_new_topic(self, topic: str, deadline: float) -> tuple[Node, ...]:
        """Where an original cluster takes the first publish of a topic; () on any other.

        A lookup that has just begun knows no nsqd yet: those it knew before serve.
        """
        nodes = self.discovery.nodes_for_new_topic(topic, deadline) if self.discovery else ()
        if nodes:
            self._nodes = nodes
        return nodes or self._nodes

    def nodes(self, deadline: float) -> tuple[Address, ...]:
        """Every nsqd: those named by hand, or all that the lookups know."""
        if self.discovery is None:
            return self._direct
        return tuple(node.address for node in self.discovery.nodes(deadline))

    def topologies(self) -> dict[str, Topology]:
        """The known topology of every topic that was asked for."""
        entries = list(self._entries.items())
        return {topic: entry.topology for topic, entry in entries if entry.topology}

    def missing_leaders(self) -> list[Figure]:
        """How many partitions of each topic have no known leader."""
        return [
            Figure("partitions_missing", (topic,), max(0, each.partition_num - len(each.leaders)))
            for topic, each in self.topologies().items()
            if each.redesigned
        ]

    def failing(self) -> dict[str, str]:
        """Topics whose last lookup failed, and why."""
        entries = list(self._entries.items())
        return {topic: entry.failure for topic, entry in entries if entry.failure}

    def due(self, topic: str) -> float:
        """When the topology of *topic* should be refreshed (monotonic seconds)."""
        entry = self._entries.get(topic)
        return entry.stale_at if entry else 0.0


def _addresses(topology: Topology) -> frozenset[Address]:
    return frozenset(target.address for target in topology.targets)


def poll_interval(topology: Topology, config: ClientConfig) -> float:
    """Seconds between polls, without jitter."""
    default = _POLL_REDESIGNED if topology.redesigned else _POLL_ORIGINAL
    return config.lookupd_poll_interval or default


def _interval(topology: Topology, config: ClientConfig) -> float:
    # The lookups may not be asked sooner: a poller would do nothing else.
    shortest = config.lookupd_min_refresh_interval
    if topology.state is not TopicState.FOUND:
        return shortest
    jitter = uniform(0.0, config.lookupd_poll_jitter)  # noqa: S311 - spreads load
    return max(shortest, poll_interval(topology, config) * (1.0 + jitter))
