"""One storm, from its beginning to its end."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from tests.helpers import eventually
from tests.sites import REAL, Site, embedded_site, real_site
from tests.storm.actors import ORDERED, PLAIN, Spec
from tests.storm.checker import STORED, Margins, Verdict, judge
from tests.storm.crew import Hand, Inside, Outside
from tests.storm.faults import Weather, script
from tests.storm.notes import Chronicle, Event, Notes

_EMBEDDED: dict[str, dict[str, Any]] = {
    "redesigned": {"nsqds": 3, "log": False, "replication_timeout": 0.1},
    "original": {"nsqds": 3, "log": False, "msg_timeout": 4},
}
_QUICK_PRODUCER = {"lookupd_min_refresh_interval": 0.1}
_QUICK_CONSUMER = {
    "lookupd_poll_interval": 1.0,
    "lookupd_min_refresh_interval": 0.1,
    "heartbeat_interval": 1,
    "rdy_redistribute_interval": 0.5,
}
_LOOK_EVERY = 0.5
_REPLICAS = 3


class Scale(NamedTuple):
    """How long things take on these servers; seconds, but for ``outside``: processes a role."""

    unit: float
    pace: float
    limit: float
    patience: float
    outside: int
    producer: dict[str, Any]
    consumer: dict[str, Any]


EMBEDDED = Scale(1.0, 0.03, 20, 30, 1, _QUICK_PRODUCER, _QUICK_CONSUMER)
REAL_ORIGINAL = Scale(3.0, 0.03, 20, 90, 2, {}, {"msg_timeout": 10})
REAL_REDESIGNED = Scale(12.0, 0.05, 60, 180, 2, {}, {"msg_timeout": 10})


def is_real(dialect: str) -> bool:
    """Whether the tester has named a folder with the programs."""
    return bool(os.environ.get(REAL[dialect][0]))


def scale_of(dialect: str) -> Scale:
    """That of the servers that there are."""
    if not is_real(dialect):
        return EMBEDDED
    return REAL_REDESIGNED if dialect == "redesigned" else REAL_ORIGINAL


def open_site(dialect: str, folder: Path) -> AbstractContextManager[Site]:
    """Real servers if the tester has named some, else embedded ones."""
    if is_real(dialect):
        return real_site(dialect, folder)
    return embedded_site(dialect, **_EMBEDDED[dialect])


@dataclass
class Tally:
    """The history so far, and what is asked of it while the storm lasts."""

    chronicle: Chronicle
    events: list[Event] = field(default_factory=list)
    stored: set[str] = field(default_factory=set)
    got: set[str] = field(default_factory=set)
    by_place: Counter[tuple[str, str]] = field(default_factory=Counter)
    places: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """Where each consumer is subscribed, by name and topic."""

    def look(self) -> None:
        """Take in what is new."""
        news = self.chronicle.news()
        self.events += news
        for event in news:
            kind = event["kind"]
            if kind == "done" and event["outcome"] == STORED:
                self.stored.add(event["id"])
            elif kind == "got":
                self.got.add(event["id"])
                self.by_place[event["topic"], event["place"]] += 1
            elif kind == "state":
                self.places[event["who"], event["topic"]] = set(event["places"])
            elif kind == "gone":
                for key in [each for each in self.places if each[0] == event["who"]]:
                    del self.places[key]


class Storm:
    """A storm on *site*; *folder* gets the history."""

    def __init__(self, site: Site, scale: Scale, folder: Path) -> None:
        self.site, self.scale, self._folder = site, scale, folder
        self.redesigned = site.dialect == "redesigned"
        self.topics = [PLAIN, ORDERED] if self.redesigned else [PLAIN]
        self.partitions = 3 if self.redesigned else 1
        self._notes = Notes(folder / "weather.jsonl")
        self.tally = Tally(Chronicle(folder))
        self._over = threading.Event()
        self._weather: Weather | None = None

    def run(self, seed: int, seconds: float) -> Verdict:
        """Let everything go wrong for so long, and judge."""
        for topic in self.topics:
            ordered, count = topic == ORDERED, self.partitions
            self.site.make_topic(topic, partitions=count, replicas=_REPLICAS, ordered=ordered)
        self._full = {topic: set(self.site.places(topic)) for topic in self.topics}
        with ExitStack() as stack:
            stack.callback(self._notes.close)
            stack.enter_context(self._watching())
            consumers = self._hands("consumer", self.scale.consumer, stack)
            producers = self._hands("producer", self.scale.producer, stack)
            self._until(self._is_warm, "every place has delivered something")
            self._blow(seed, seconds, {"producer": producers, "consumer": consumers})
            self._calm()
            for hand in producers:
                hand.end()
            with suppress(AssertionError):  # it is for the verdict
                self._until(self._is_settled, "everything is delivered and everyone is there")
            for hand in consumers:
                hand.end()
        self.tally.look()
        return self._judge()

    def _judge(self) -> Verdict:
        tally = self.tally
        gone = {body.encode() for body in tally.stored - tally.got}
        held = self.site.held(gone)
        known = None if held is None else {body.decode() for body in held}
        patience = self.scale.patience
        return judge(tally.events, known, Margins(left_behind=patience * 0.9))

    def _hands(self, role: str, options: dict[str, Any], stack: ExitStack) -> list[Hand]:
        hands: list[Hand] = []
        kinds: list[Callable[[Spec, Path], Hand]] = [Outside] * self.scale.outside + [Inside]
        for number, kind in enumerate(kinds):
            spec = {
                "role": role,
                "name": f"{role}{number}",
                "url": self.site.url,
                "topics": self.topics,
                "partitions": self.partitions,
                "options": options,
                "pace": self.scale.pace,
                "limit": self.scale.limit,
            }
            hands.append(kind(spec, self._folder))
            stack.callback(hands[-1].end)
        return hands

    def _blow(self, seed: int, seconds: float, hands: dict[str, list[Hand]]) -> None:
        weather = Weather(self.site, hands, self._notes, self.scale.unit, self._calm)
        self._weather = weather
        deadline = monotonic() + seconds
        blows = script(seed, self.site.dialect, etcd=bool(self.site.others))
        for number, blow in enumerate(blows):
            if monotonic() >= deadline:
                return
            weather.blow(blow, self.topics[number % len(self.topics)])

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Meanwhile it is noted which places are served."""
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_EVERY):
            down = self._weather.down if self._weather else set()
            for topic in self.topics:
                served = self.site.places(topic).items()
                places = {place: node for place, node in served if node not in down}
                self._notes.note("leaders", topic=topic, places=places)

    def _calm(self) -> None:
        """Until the servers have got over it: a second loss behind the first is another matter."""
        with suppress(AssertionError):
            self._until(self._is_whole, "all replicas are in sync")

    def _is_whole(self) -> bool:
        for topic in self.topics:
            if set(self.site.places(topic)) != self._full[topic]:
                return False
            if self.redesigned and set(self.site.in_sync(topic).values()) != {_REPLICAS}:
                return False
        return True

    def _is_warm(self) -> bool:
        """The first FIN of every place: before that a channel may be forgotten."""
        self.tally.look()
        counts = self.tally.by_place
        return all(counts[topic, place] > 3 for topic in self.topics for place in self._full[topic])

    def _is_settled(self) -> bool:
        self.tally.look()
        there = all(places >= self._full[topic] for (_, topic), places in self.tally.places.items())
        return there and self.tally.stored <= self.tally.got

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        eventually(condition, self.scale.patience, what, every=0.1)
