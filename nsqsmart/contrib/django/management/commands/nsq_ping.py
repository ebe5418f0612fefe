"""``manage.py nsq_ping``: do the servers answer?"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from nsqsmart import NsqError
from nsqsmart.contrib.django import conf
from nsqsmart.contrib.django.handlers import discover
from nsqsmart.contrib.shared.fitting import describe_dialects, find_dialects, find_misfits
from nsqsmart.errors import ConfigError, DiscoveryError
from nsqsmart.terminal import FAILED, RETRY_LATER


class Command(BaseCommand):
    """Exit code 0 if every alias has an nsqd that answers, 75 if not.

    1 for bad settings, and for servers that cannot do what settings and handlers declare.
    """

    help = (
        "Shakes hands with the nsqds of every alias of the setting NSQSMART, and says which "
        "servers they are."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: Any) -> None:
        """Its options."""
        parser.add_argument("--alias", help="only this one")
        parser.add_argument("--timeout", type=float, default=5.0, help="seconds for each alias")

    def handle(self, *_arguments: Any, **options: Any) -> None:
        """Ask, print, and end with the code."""
        silent: list[str] = []
        wrong: list[str] = []
        try:
            names = [options["alias"]] if options["alias"] else list(conf.read_aliases())
            for name in names:
                with conf.get_alias(name).make_producer() as producer:
                    failures = self._ping(name, producer, options["timeout"])
                silent += failures
                if not failures:
                    wrong += self._look(name, options["timeout"])
        except ConfigError as error:
            raise CommandError(str(error), returncode=FAILED) from error
        if silent:
            raise CommandError("\n".join(silent + wrong), returncode=RETRY_LATER)
        if wrong:
            raise CommandError("\n".join(wrong), returncode=FAILED)

    def _ping(self, name: str, producer: Any, timeout: float) -> list[str]:
        try:
            took = producer.ping(timeout)
        except NsqError as error:
            return [f"{name}: {error}"]
        for nsqd, seconds in sorted(took.items()):
            self.stdout.write(f"{name}: {nsqd} answered in {seconds * 1000:.1f} ms")
        return []

    def _look(self, name: str, timeout: float) -> list[str]:
        """Say which servers these are; what they cannot do."""
        alias = conf.get_alias(name)
        try:
            dialects = find_dialects(alias, timeout)
        except DiscoveryError as error:
            return [f"{name}: {error}"]
        for line in describe_dialects(dialects, alias):
            self.stdout.write(f"{name}: {line}")
        misfits = find_misfits(dialects, alias, discover(name))
        return [f"{name}: {misfit}" for misfit in misfits]
