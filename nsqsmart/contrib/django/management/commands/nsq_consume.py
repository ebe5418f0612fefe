"""``manage.py nsq_consume``: run the handlers of the project."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import autoreload

from nsqsmart.contrib.django.handlers import discover, make_shift, pool_warnings
from nsqsmart.contrib.shared.declaring import Declared, choose
from nsqsmart.contrib.shared.running import (
    CONSUMING,
    ServersLost,
    StopLimits,
    describe,
)
from nsqsmart.errors import ConfigError, NsqError
from nsqsmart.terminal import FAILED, INTERRUPTED, RETRY_LATER


class Command(BaseCommand):
    """Exit code 0 when it was told to stop or met a limit, 1 for what is wrong, 75 without servers.

    SIGINT and SIGTERM drain; a second one ends it at once.
    """

    help = "Consumes with the handlers that the apps declare in their nsq.py."

    def add_arguments(self, parser: Any) -> None:
        """Its options."""
        parser.add_argument("--alias", help="only handlers of this alias")
        parser.add_argument("--topic", help="only handlers of this topic")
        parser.add_argument("--channel", help="only handlers of this channel")
        parser.add_argument("--workers", type=int, help="threads of each handler")
        parser.add_argument("--max-messages", type=int, help="stop after so many messages")
        parser.add_argument(
            "--exit-when-idle", type=float, metavar="SECONDS", help="stop when none came so long"
        )
        parser.add_argument(
            "--lost-after",
            type=float,
            metavar="SECONDS",
            default=120.0,
            help="end with exit code 75 when no nsqd was reached so long (default: %(default)g)",
        )
        parser.add_argument(
            "--autoreload", action="store_true", help="start again when the code changes"
        )

    def handle(self, *_arguments: Any, **options: Any) -> None:
        """Consume until it ends."""
        if options["autoreload"]:
            autoreload.run_with_reloader(self.consume_reloaded, **options)
        else:
            self._consume(**options)

    def consume_reloaded(self, **options: Any) -> None:
        """In a thread of the reloader: what is wrong is told, and the next change tries again."""
        try:
            self._consume(**options)
        except CommandError as error:
            self.stderr.write(str(error))

    def _consume(self, **options: Any) -> None:
        limits = StopLimits(
            options["max_messages"], options["exit_when_idle"], options["lost_after"]
        )
        try:
            chosen = choose(
                discover(),
                topic=options["topic"],
                channel=options["channel"],
                alias=options["alias"],
            )
            shift = make_shift(chosen, limits, options["workers"])
        except ConfigError as error:
            raise CommandError(str(error), returncode=FAILED) from error
        self._tell(chosen, options["workers"])
        if options["autoreload"]:
            shift.stop_at_exit()
        try:
            reports = shift.run(self._tell_ready)
        except ServersLost as error:
            raise CommandError(str(error), returncode=RETRY_LATER) from error
        except NsqError as error:
            raise CommandError(str(error), returncode=FAILED) from error
        except KeyboardInterrupt:
            raise CommandError("interrupted while it drained", returncode=INTERRUPTED) from None
        for line in describe(chosen, reports):
            self.stdout.write(line)

    def _tell(self, chosen: list[Declared], workers: int | None) -> None:
        for warning in pool_warnings(chosen, workers):
            self.stderr.write(self.style.WARNING(warning))
        for each in chosen:
            self.stdout.write(f"{each.topic}/{each.channel}: {each.name}")
        self.stdout.flush()

    def _tell_ready(self) -> None:
        self.stdout.write(CONSUMING)
        self.stdout.flush()
