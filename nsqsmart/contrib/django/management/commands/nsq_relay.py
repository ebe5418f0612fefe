"""``manage.py nsq_relay``: publish what is in the outbox."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, Error, close_old_connections

from nsqsmart.contrib.django.relaying import Passage, Relay
from nsqsmart.terminal import FAILED, RETRY_LATER, signals_to

_LONGEST_PAUSE = 30.0
_TURN = 0.25


class Command(BaseCommand):
    """Exit code 0 when it was told to stop, or with --once when all was published.

    With --once 1 when something was refused for good, which waits for a person, and else 75.
    """

    help = "Publishes the rows of the outbox; any number of relays may run at once."

    def add_arguments(self, parser: Any) -> None:
        """Its options."""
        parser.add_argument("--once", action="store_true", help="empty the outbox and end")
        parser.add_argument(
            "--interval", type=float, default=1.0, metavar="SECONDS", help="pause when it is empty"
        )
        parser.add_argument("--page", type=int, default=200, help="rows in one go")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="where the outbox is")

    def handle(self, *_arguments: Any, **options: Any) -> None:
        """Relay until it ends."""
        relay = Relay(options["database"], options["page"])
        if not options["once"]:
            self._go_on(relay, options["interval"])
            return
        passage = relay.run_once()
        self.stdout.write(_describe(passage))
        if passage.refused:
            raise CommandError(
                f"{passage.refused} refused for good: they stay in the outbox with refused=True, "
                "and last_error says why",
                returncode=FAILED,
            )
        if passage.kept:
            raise CommandError("some could not be published yet", returncode=RETRY_LATER)

    def _go_on(self, relay: Relay, interval: float) -> None:
        pause = interval
        with signals_to(relay.stop):
            # A program that reads it may send a signal at once.
            self._tell("relaying; SIGINT or SIGTERM ends it")
            while not relay.stopped:
                close_old_connections()
                passage = self._pass(relay)
                # Without its database it can do nothing; a topic that fails the relay leaves alone.
                pause = interval if passage is not None else min(2 * pause, _LONGEST_PAUSE)
                if passage is None or not passage.sent:
                    _pause(relay, pause)

    def _pass(self, relay: Relay) -> Passage | None:
        try:
            passage = relay.run_once(brief=True)
        except Error as error:
            # It may be back soon, and nothing is lost meanwhile.
            self.stderr.write(f"the database: {error}")
            return None
        if passage != Passage():
            self._tell(_describe(passage))
        return passage

    def _tell(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()


def _pause(relay: Relay, seconds: float) -> None:
    """In turns: a signal that comes just before a sleep begins does not end that one.

    Not by an Event: its handler would wait for the lock of the wait it has interrupted.
    """
    until = monotonic() + seconds
    while not relay.stopped and (rest := until - monotonic()) > 0:
        sleep(min(rest, _TURN))


def _describe(passage: Passage) -> str:
    return f"{passage.sent} sent, {passage.refused} refused, {passage.kept} kept"
