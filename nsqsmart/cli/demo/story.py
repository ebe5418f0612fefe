"""The story: publish, consume, move a leader, kill an nsqd; what comes of it is told in lines."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from statistics import quantiles
from time import monotonic
from typing import Any, TextIO

import nsqsmart
from nsqsmart.embedded import Cluster
from nsqsmart.errors import PublishError
from nsqsmart.terminal import MovingLine
from nsqsmart.testing.history import History

_BAR = 24

_PARTITIONS = 3
_REPLICAS = 3
_THREADS = 4
_PATIENCE = 60.0
_TICK = 0.1


class Printer:
    """Prints the numbered steps of a story; silent when a program reads the result.

    The bar needs a terminal; ``NO_COLOR`` and *plain* switch it off.
    """

    def __init__(self, *, plain: bool, silent: bool, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._silent = silent
        self._bar = MovingLine(self._out, off=plain or silent)

    def line(self, text: str = "") -> None:
        """One line."""
        if not self._silent:
            self._bar.clear()
            print(text, file=self._out, flush=True)

    def step(self, number: int, title: str, text: str) -> None:
        """A step of the story that has been made."""
        self.line(f" {number} {title:<12} {text}")

    def bar(self, title: str, done: int, total: int) -> None:
        """How far it is; drawn over on a terminal, nothing elsewhere."""
        filled = _BAR * done // max(1, total)
        bar = "█" * filled + "░" * (_BAR - filled)
        self._bar.draw(f"   {title:<12} {bar}  {done:,}/{total:,} ")


@dataclass
class Ledger:
    """One topic's books; thread-safe. *keys* gives the key of each message, by its number.

    Messages are told apart by their trace id, which the demo chooses: bodies stay untouched, and a
    copy that a retry stored twice is recognised as a copy.
    """

    topic: str
    keys: list[str]
    first_id: int
    ordered: bool
    history: History[int] = field(default_factory=History)
    retried: int = 0
    latencies: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Messages of a key are sent as they are numbered."""
        for number, key in enumerate(self.keys):
            self.history.sent(number, key if self.ordered else None)

    def trace_id(self, number: int) -> int:
        """The trace id of message *number*."""
        return self.first_id + number

    def publish(self, number: int, attempts: int, seconds: float) -> None:
        """Message *number* was accepted."""
        self.history.acknowledged(number)
        with self.lock:
            self.retried += attempts > 1
            self.latencies.append(seconds)

    def consume(self, trace_id: int) -> int:
        """A handler has the message of *trace_id*; returns how often it came before."""
        number = trace_id - self.first_id
        return self.history.consumed(number) if 0 <= number < len(self.keys) else 0


@dataclass(frozen=True)
class Workload:
    """What to publish: ordered by key, and pooled, of which *failing* fail once."""

    orders: Ledger
    clicks: Ledger
    bodies: list[bytes] | None
    failing: frozenset[int]

    @property
    def total(self) -> int:
        """How many messages there are."""
        return len(self.orders.keys) + len(self.clicks.keys)

    def body(self, ledger: Ledger, number: int) -> bytes:
        """What message *number* says."""
        if ledger is self.orders and self.bodies is not None:
            return self.bodies[number]
        return b'{"topic": "%s", "number": %d}' % (ledger.topic.encode(), number)


@dataclass
class Story:
    """One telling of the story."""

    cluster: Cluster
    work: Workload
    printer: Printer
    leader_moves: int = 0
    nsqds_killed: int = 0
    failures: list[str] = field(default_factory=list)
    sample: nsqsmart.Receipt | None = None
    seconds_publishing: float = 0.0
    requeued: int = 0
    _progress: threading.Condition = field(default_factory=threading.Condition)
    _settled: int = 0

    def tell(self) -> None:
        """Everything, in order; what fails is noted and judged by :meth:`report`."""
        self._discover()
        consumers = self._consume()
        producer = nsqsmart.Producer(
            self.cluster.url, retry_unanswered=True, publish_timeout=_PATIENCE
        )
        started = monotonic()
        threads = ThreadPoolExecutor(_THREADS, "demo")
        try:
            shares = [threads.submit(self._publish, producer, n) for n in range(_THREADS)]
            self._wait_for(self.work.total // 3)
            self._move_leader()
            self._wait_for(self.work.total * 2 // 3)
            self._kill_nsqd()
            for share in shares:
                self._await_share(share)
            self.seconds_publishing = monotonic() - started
            self._tell_published()
            self._await_consumption()
        finally:
            producer.close()
            threads.shutdown()
            reports = [consumer.close() for consumer in consumers]
        self.requeued = sum(report.requeued for report in reports)
        self._tell_consumed()

    def _discover(self) -> None:
        for ledger in (self.work.orders, self.work.clicks):
            self.cluster.create_topic(
                ledger.topic, partitions=_PARTITIONS, replicas=_REPLICAS, ordered=ledger.ordered
            )
            self.cluster.create_channel(ledger.topic, "demo")
        names = {nsqd.tcp_address: f"nsqd-{n}" for n, nsqd in enumerate(self.cluster.nsqds)}
        leaders = "  ".join(
            f"{number}→{names[self.cluster.leader('orders', number).tcp_address]}"
            for number in range(_PARTITIONS)
        )
        self.printer.step(1, "discover", f"topic orders, ordered; leaders of partitions {leaders}")

    def _consume(self) -> list[nsqsmart.Consumer]:
        return [
            nsqsmart.Consumer(
                "orders", "demo", self._handle_order, address=self.cluster.url, workers=_PARTITIONS
            ).start(),
            nsqsmart.Consumer(
                "clicks", "demo", self._handle_click, address=self.cluster.url, workers=4
            ).start(),
        ]

    def _handle_order(self, message: nsqsmart.Message) -> None:
        self.work.orders.consume(message.trace_id or 0)

    def _handle_click(self, message: nsqsmart.Message) -> None:
        ledger = self.work.clicks
        trace_id = message.trace_id or 0
        number = trace_id - ledger.first_id
        if not ledger.consume(trace_id) and number in self.work.failing:
            raise nsqsmart.Requeue(0.01, backoff=False)

    def _publish(self, producer: nsqsmart.Producer, share: int) -> None:
        """One thread's share: every key belongs to one thread, so its order is the thread's."""
        orders, clicks = self.work.orders, self.work.clicks
        for number, key in enumerate(orders.keys):
            if hash_share(key) == share:
                self._publish_one(producer, orders, number, key)
            if number < len(clicks.keys) and number % _THREADS == share:
                self._publish_one(producer, clicks, number, None)

    def _publish_one(
        self, producer: nsqsmart.Producer, ledger: Ledger, number: int, key: str | None
    ) -> None:
        started = monotonic()
        try:
            receipt = producer.publish(
                ledger.topic,
                self.work.body(ledger, number),
                key=key,
                trace_id=ledger.trace_id(number),
            )
        except PublishError as error:
            self.failures.append(str(error))
        else:
            ledger.publish(number, receipt.attempts, monotonic() - started)
            if ledger.ordered and receipt.attempts > 1:
                self.sample = receipt
        with self._progress:
            self._settled += 1
            self._progress.notify_all()

    def _wait_for(self, count: int) -> None:
        with self._progress:
            while self._settled < count:
                self._progress.wait(_TICK)
                self.printer.bar("publish", self._settled, self.work.total)

    def _await_share(self, share: Future[None]) -> None:
        while not wait([share], _TICK).done:
            self.printer.bar("publish", self._settled, self.work.total)

    def _move_leader(self) -> None:
        before = self.cluster.leader("orders", 0)
        started = monotonic()
        self.cluster.move_leader("orders", 0)
        after = self.cluster.leader("orders", 0)
        self.leader_moves += after is not before
        self.printer.step(
            2,
            "move",
            f"at {self._settled:,} messages the leader of partition 0 moves: "
            f"{self._name(before)} → {self._name(after)}, {1000 * (monotonic() - started):.0f} ms",
        )

    def _kill_nsqd(self) -> None:
        victim = self.cluster.leader("orders", 1)
        led = [n for n in range(_PARTITIONS) if self.cluster.leader("orders", n) is victim]
        self.cluster.kill(victim)
        self.nsqds_killed += 1
        self.printer.step(
            3,
            "kill",
            f"at {self._settled:,} messages {self._name(victim)} is killed; it led "
            f"partition {', '.join(map(str, led))} of orders; a follower takes over",
        )

    def _name(self, nsqd: object) -> str:
        return f"nsqd-{[node is nsqd for node in self.cluster.nsqds].index(True)}"

    def _await_consumption(self) -> None:
        """Until everything accepted was handled; a lost message ends the patience."""
        deadline = monotonic() + _PATIENCE
        pause = threading.Event()
        both = (self.work.orders, self.work.clicks)
        while any(ledger.history.lost() for ledger in both) and monotonic() < deadline:
            pause.wait(_TICK / 2)
            done = sum(len(ledger.history.counts()) for ledger in both)
            self.printer.bar("consume", done, self.work.total)

    def _tell_published(self) -> None:
        times = self.work.orders.latencies + self.work.clicks.latencies
        accepted = len(times)
        rate = accepted / max(self.seconds_publishing, 1e-9)
        retried = self.work.orders.retried + self.work.clicks.retried
        cuts = quantiles(times, n=100) if accepted > 1 else [0.0] * 99
        self.printer.step(
            4,
            "publish",
            f"{accepted:,} accepted by {_THREADS} threads, {rate:,.0f}/s, "
            f"p50 {cuts[49] * 1e6:,.0f} µs, p99 {cuts[98] * 1e6:,.0f} µs; {retried} looked up "
            "again and retried",
        )
        if self.sample:
            self.printer.step(
                5,
                "trace",
                f"message {self.sample.trace_id} took {self.sample.attempts} attempts: "
                f"partition {self.sample.partition} at {self.sample.nsqd}, internal id "
                f"{self.sample.internal_id:#x}, offset {self.sample.offset:,}",
            )

    def _tell_consumed(self) -> None:
        orders, clicks = self.work.orders, self.work.clicks
        self.printer.step(
            6,
            "consume",
            f"{len(orders.history.counts()):,} orders in order by key, "
            f"{len(clicks.history.counts()):,} clicks by 4 workers; {self.requeued} given back",
        )

    def report(self, *, seconds: float, seed: int) -> dict[str, Any]:
        """The figures, and the checks that decide about the exit code."""
        both = (self.work.orders, self.work.clicks)
        published = sum(ledger.history.published for ledger in both)
        consumed = sum(len(ledger.history.counts()) for ledger in both)
        lost = sum(len(ledger.history.lost()) for ledger in both)
        violations = sum(len(ledger.history.disorder()) for ledger in both)
        # Deliveries beyond the first of each message.
        duplicates = sum(
            count - 1 for ledger in both for count in ledger.history.duplicates().values()
        )
        counts = self.work.clicks.history.counts()
        retried_well = all(counts[number] > 1 for number in self.work.failing)
        checks = {
            f"{published:,} published = {self.work.total:,} to publish": not self.failures
            and published == self.work.total,
            f"{consumed:,} consumed, {lost} lost": lost == 0 and consumed >= published,
            f"order kept for every key, {violations} violations": violations == 0,
            "a moved leader and a killed nsqd survived": bool(self.leader_moves)
            and bool(self.nsqds_killed),
            f"{len(self.work.failing)} failed handlers retried, and ended well": retried_well,
        }
        return {
            "ok": all(checks.values()),
            "published": published,
            "consumed": consumed,
            "lost": lost,
            "duplicates": duplicates - len(self.work.failing),
            "order_violations": violations,
            "leader_moves": self.leader_moves,
            "nsqds_killed": self.nsqds_killed,
            "publish_retries": sum(ledger.retried for ledger in both),
            "requeued": self.requeued,
            "failures": self.failures[:10],
            "checks": checks,
            "seconds": round(seconds, 1),
            "seed": seed,
        }


def hash_share(key: str) -> int:
    """Which thread publishes *key*; the same in every run, unlike hash()."""
    return sum(key.encode()) % _THREADS
