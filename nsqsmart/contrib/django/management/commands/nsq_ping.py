"""``manage.py nsq_ping``: do the servers answer?"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from nsqsmart import NsqError
from nsqsmart.contrib.django import conf
from nsqsmart.contrib.django.aliases import make_producer
from nsqsmart.contrib.shared.running import BAD_CONFIGURATION, RETRY_LATER
from nsqsmart.errors import ConfigError


class Command(BaseCommand):
    """Exit code 0 if every alias has an nsqd that answers, 1 for bad settings, 75 otherwise."""

    help = "Shakes hands with the nsqds of every alias of the setting NSQSMART."
    requires_system_checks = ()

    def add_arguments(self, parser: Any) -> None:
        """Its options."""
        parser.add_argument("--alias", help="only this one")
        parser.add_argument("--timeout", type=float, default=5.0, help="seconds for each alias")

    def handle(self, *_arguments: Any, **options: Any) -> None:
        """Ask, print, and end with the code."""
        silent = []
        try:
            names = [options["alias"]] if options["alias"] else list(conf.read_aliases())
            for name in names:
                with make_producer(name) as producer:
                    silent += self._ping(name, producer, options["timeout"])
        except ConfigError as error:
            raise CommandError(str(error), returncode=BAD_CONFIGURATION) from error
        if silent:
            raise CommandError("\n".join(silent), returncode=RETRY_LATER)

    def _ping(self, name: str, producer: Any, timeout: float) -> list[str]:
        try:
            took = producer.ping(timeout)
        except NsqError as error:
            return [f"{name}: {error}"]
        for nsqd, seconds in sorted(took.items()):
            self.stdout.write(f"{name}: {nsqd} answered in {seconds * 1000:.1f} ms")
        return []
