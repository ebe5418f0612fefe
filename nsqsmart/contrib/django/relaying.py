"""From the outbox to the servers: at least once, in order by key, by any number of relays.

What could not be published rests for a while.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from uuid import uuid4

from django.db import connections, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from nsqsmart.contrib.django import conf
from nsqsmart.contrib.django.conf import find_producer
from nsqsmart.contrib.django.models import OutboxLane, OutboxMessage
from nsqsmart.contrib.django.signals import tally, tell
from nsqsmart.contrib.shared.delivering import log_loss
from nsqsmart.contrib.shared.sending import HOPELESS, Dispatch, Failure, Letter

log = logging.getLogger("nsqsmart")

_FIRST = 1.0  # seconds
_LONGEST = 30.0

Target = tuple[str, str]
"""Alias and topic."""

_PAGE_BYTES = 8 << 20
_LEASE_MARGIN = 30.0
_SHOWN_ERROR = 500


@dataclass(slots=True)
class _Rest:
    until: float
    pause: float


class Rests:
    """By lane: keys of other lanes may belong to a partition that takes messages."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rests: dict[tuple[int, Target], _Rest] = {}

    def of(self, lane: int) -> set[Target]:
        """What rests in *lane* now."""
        now = self._clock()
        return {
            target
            for (its, target), rest in self._rests.items()
            if its == lane and rest.until > now
        }

    def failed(self, lane: int, target: Target) -> None:
        """It rests, twice as long as the last time."""
        before = self._rests.get((lane, target))
        pause = _FIRST if before is None else min(2 * before.pause, _LONGEST)
        self._rests[lane, target] = _Rest(self._clock() + pause, pause)

    def went(self, lane: int, target: Target) -> None:
        """It was published: it rests no more."""
        self._rests.pop((lane, target), None)


@dataclass(slots=True)
class Passage:
    """What one look at the outbox did: messages ``sent``, ``refused`` for good, and ``kept``."""

    sent: int = 0
    refused: int = 0
    kept: int = 0


class Relay:
    """Publishes what is in the outbox of *database*, *page* rows at a time.

    A topic that could not be published rests in its order group for a while; other topics go on.

    An order group (column ``lane``) belongs to one relay at a time: where the database can skip
    locked rows, by a lock that ends with the relay's transaction; elsewhere by a lease in the row,
    which others respect until its time is over.
    """

    def __init__(
        self,
        database: str = "default",
        page: int = 200,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._database = database
        self._page = page
        self._name = uuid4().hex
        self._stopped = False
        self._rests = Rests(clock)
        self._failed = -1  # the order group in which a topic failed last

    @property
    def stopped(self) -> bool:
        """Whether it is to end."""
        return self._stopped

    def stop(self) -> None:
        """Let it end after what it has in hand; may be called by a signal handler."""
        self._stopped = True

    def run_once(self, *, brief: bool = False) -> Passage:
        """Publish from every order group once, except those that another relay owns.

        *brief*: a topic that fails in one group is skipped in the later ones, so that it costs the
        others one timeout and not one for each group; the next round begins after that group.
        """
        passage, failing = Passage(), set[Target]()
        waiting = OutboxMessage.objects.using(self._database).filter(refused=False)
        lanes = set(waiting.values_list("lane", flat=True).distinct())
        for lane in sorted(lanes, key=lambda lane: (brief and lane <= self._failed, lane)):
            if self._stopped:
                break
            found = self._empty(lane, failing if brief else set(), passage)
            if found:
                failing |= found
                self._failed = lane
        return passage

    def _empty(self, lane: int, others: set[Target], passage: Passage) -> set[Target]:
        """Publish *lane*, except what rests and the *others*; returns what failed.

        Page by page, so that no transaction is long.
        """
        after, failing, resting = 0, set[Target](), self._rests.of(lane) | others
        if resting and not self._waiting(lane, after, resting).exists():
            return failing
        while not self._stopped:
            with self._hold(lane) as held:
                page = self._read(lane, after, resting | failing) if held else []
                if not page:
                    break
                after = page[-1].pk
                found = self._publish(page, passage)
            for target in {(row.alias, row.topic) for row in page}:
                note = self._rests.failed if target in found else self._rests.went
                note(lane, target)
            failing |= found
        return failing

    def _waiting(self, lane: int, after: int, resting: set[Target]) -> QuerySet[OutboxMessage]:
        rows = OutboxMessage.objects.using(self._database).filter(
            refused=False, lane=lane, pk__gt=after
        )
        for alias, topic in resting:
            rows = rows.exclude(alias=alias, topic=topic)
        return rows

    def _read(self, lane: int, after: int, resting: set[Target]) -> list[OutboxMessage]:
        page: list[OutboxMessage] = []
        size = 0
        rows = self._waiting(lane, after, resting).order_by("pk")
        for row in rows[: self._page].iterator(chunk_size=20):
            page.append(row)
            size += len(row.body)
            if size >= _PAGE_BYTES:
                break
        return page

    def _publish(self, page: list[OutboxMessage], passage: Passage) -> set[Target]:
        """The messages that could not be published yet."""
        done, failures, failing = [], [], set[Target]()
        for alias in dict.fromkeys(row.alias for row in page):
            rows = {row.pk: row.letter() for row in page if row.alias == alias}
            found = {id(each.letter): each for each in _dispatch(alias, list(rows.values()))}
            for key, letter in rows.items():
                if id(letter) in found:
                    failures.append((key, found[id(letter)]))
                else:
                    done.append(key)
        stored = OutboxMessage.objects.using(self._database)
        stored.filter(pk__in=done).delete()
        passage.sent += len(done)
        for key, failure in failures:
            refused = isinstance(failure.error, HOPELESS)
            error = str(failure.error)[:_SHOWN_ERROR]
            stored.filter(pk=key).update(refused=refused, last_error=error)
            if refused:
                passage.refused += 1
                log_loss(failure)
                tally.add(failed=1)
                tell(failure)
            else:
                passage.kept += 1
                failing.add((failure.letter.alias, failure.letter.topic))
        return failing

    @contextmanager
    def _hold(self, lane: int) -> Iterator[bool]:
        """Whether this relay owns *lane*, inside the block."""
        OutboxLane.objects.using(self._database).get_or_create(lane=lane)
        lanes = OutboxLane.objects.using(self._database).filter(lane=lane)
        if connections[self._database].features.has_select_for_update_skip_locked:
            with transaction.atomic(using=self._database):
                yield bool(lanes.select_for_update(skip_locked=True))
            return
        # Every alias has its time for one page.
        aliases = conf.read_aliases().values()
        longest = sum(alias.target()[1].publish_timeout for alias in aliases)
        now = timezone.now()
        free = lanes.filter(Q(held_until=None) | Q(held_until__lt=now))
        until = now + timedelta(seconds=longest + _LEASE_MARGIN)
        if not free.update(holder=self._name, held_until=until):
            yield False
            return
        try:
            yield True
        finally:
            lanes.filter(holder=self._name).update(holder="", held_until=None)


def _dispatch(alias: str, letters: list[Letter]) -> list[Failure]:
    try:
        producer, limit = find_producer(alias)
    except Exception as error:  # noqa: BLE001 - it is written into the row
        log.error(  # noqa: TRY400 - the settings are wrong: no traceback says more
            "the outbox holds messages for alias %s: %s", alias, error
        )
        return [Failure(letter, RuntimeError(str(error))) for letter in letters]
    dispatch = Dispatch(producer, letters, monotonic() + limit)
    dispatch.run()
    return dispatch.failures
