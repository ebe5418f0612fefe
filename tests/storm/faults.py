"""What goes wrong in a storm: the same seed makes the same script."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from tests.sites import ENDINGS, Site
from tests.storm.crew import Hand
from tests.storm.notes import Notes

_SERVERS = [(kind, end) for kind in ("nsqd", "nsqd", "nsqlookupd") for end in ENDINGS]
CLIENTS = (("producer", "replace"), ("consumer", "replace"))
MOVE = ("leader", "move")
ETCD = [("etcd", "hang"), ("etcd", "kill")]


class Blow(NamedTuple):
    """One thing that goes wrong with the *number*-th of a kind, for *lasts* times the unit."""

    kind: str
    action: str
    number: int
    lasts: float
    pause: float

    def __str__(self) -> str:
        return f"{self.action} {self.kind}"


def choices(dialect: str, *, etcd: bool) -> list[tuple[str, str]]:
    """What can go wrong."""
    found = [*_SERVERS, *CLIENTS, *CLIENTS]
    if dialect == "redesigned":
        found += [MOVE, MOVE]
    return found + ETCD * etcd


def script(seed: int, dialect: str, *, etcd: bool) -> list[Blow]:
    """What happens, by the seed alone: each of it once in any order, again and again."""
    rng = random.Random(seed)
    blows: list[Blow] = []
    for _ in range(200):
        deck = choices(dialect, etcd=etcd)
        rng.shuffle(deck)
        blows += [
            Blow(*card, rng.randrange(100), rng.uniform(0.2, 1.5), rng.uniform(0.1, 0.8))
            for card in deck
        ]
    return blows


class Weather:
    """Carries out a script on *site* and on the hands of a storm.

    A *unit* is how many seconds a blow lasts on average. ``calm`` is waited for after each.
    """

    def __init__(
        self,
        site: Site,
        hands: dict[str, list[Hand]],
        notes: Notes,
        unit: float,
        calm: Callable[[], object],
    ) -> None:
        self._site, self._hands, self._notes = site, hands, notes
        self._unit, self._calm = unit, calm
        self._never = threading.Event()
        self.down: set[str] = set()
        """Servers that are taken away just now."""

    def blow(self, blow: Blow, topic: str) -> None:
        """Let it happen, and wait until it is over."""
        if blow.kind in self._hands:
            hands = self._hands[blow.kind]
            self._notes.note("fault", what=str(blow), server="")
            hands[blow.number % len(hands)].replace()
        elif (blow.kind, blow.action) == MOVE:
            self._move(blow, topic)
        else:
            self._lose(blow)
        self._never.wait(blow.pause * self._unit)

    def _move(self, blow: Blow, topic: str) -> None:
        places = sorted(self._site.places(topic))
        if not places or not self._site.is_stable():
            return
        self._notes.note("fault", what=str(blow), server="")
        # A cluster that is just busy refuses; there are other blows.
        with suppress(AssertionError, LookupError, ValueError, StopIteration):
            self._site.move_leader(topic, int(places[blow.number % len(places)]))

    def _lose(self, blow: Blow) -> None:
        site = self._site
        kinds = {"nsqd": site.nodes, "nsqlookupd": site.lookups, "etcd": site.others}
        servers = kinds[blow.kind]
        server = servers[blow.number % len(servers)]
        self._notes.note("fault", what=str(blow), server=server)
        self.down.add(server)
        try:
            getattr(site, blow.action)(server)
            self._never.wait(blow.lasts * self._unit)
        finally:
            getattr(site, ENDINGS[blow.action])(server)
            self.down.discard(server)
            self._notes.note("mended", what=str(blow), server=server)
        self._calm()
