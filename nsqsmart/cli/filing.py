"""What ``to-file`` does: a consumer and its files for every topic, and topics that come later."""

from __future__ import annotations

import argparse
import logging
import re
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Protocol

from nsqsmart import Admin, CloseReport, Consumer, ConsumerConfig, Message
from nsqsmart.cli.ending import Ending, consume, keep
from nsqsmart.cli.progress import Bar
from nsqsmart.errors import AdminError, ConfigError, TransportError

log = logging.getLogger("nsqsmart.cli")


class Files(Protocol):
    """Where messages of one topic go."""

    closed: list[Path]

    def write(self, messages: Sequence[Message]) -> None:
        """Put them on disk; raises OSError."""

    def tick(self) -> None:
        """Rotate if it is time."""

    def close(self) -> None:
        """End what is open."""


class Finder:
    """Finds topics by a pattern, now and then."""

    def __init__(self, admin: Admin, pattern: re.Pattern[str], every: float) -> None:
        self._admin = admin
        self._pattern = pattern
        self._every = every
        self._due = 0.0

    def find(self) -> list[str]:
        """The topics, or none if it is not time or no lookup answers."""
        if monotonic() < self._due:
            return []
        self._due = monotonic() + self._every
        try:
            return [topic for topic in self._admin.topics() if self._pattern.search(topic)]
        except (AdminError, TransportError) as error:
            log.warning("topics cannot be looked up: %s", error)
            return []


class Source(NamedTuple):
    """Where messages come from: what was *given* wins over the query of the address, the *config*,
    which has the rest, does not.
    """

    address: str
    config: ConsumerConfig
    given: Mapping[str, Any]


class Filing:
    """Consumers that write what they get."""

    def __init__(
        self,
        chosen: argparse.Namespace,
        source: Source,
        ending: Ending,
        make_files: Callable[[str], Files],
    ) -> None:
        self._channel = chosen.channel
        self._most = chosen.n
        self._source = source
        self._ending = ending
        self._make_files = make_files
        self._consumers: list[Consumer] = []
        self._files: dict[str, Files] = {}
        self._lock = threading.Lock()  # guards the files, and the two below
        self._reopen = False
        self.written = 0
        self._bar = Bar("to-file", chosen.n)

    @property
    def closed(self) -> list[Path]:
        """Every file that is whole."""
        return [path for files in self._files.values() for path in files.closed]

    def add(self, topics: Iterable[str]) -> list[Consumer]:
        """Consumers of *topics* that are new, not started."""
        source = self._source
        added = []
        for topic in topics:
            if topic in self._files:
                continue
            files = self._files[topic] = self._make_files(topic)
            consumer = Consumer(
                topic,
                self._channel,
                batch_handler=self._handler(files),
                address=source.address,
                config=source.config,
                **source.given,
            )
            added.append(consumer)
        self._consumers += added
        return added

    def run(self, finder: Finder | None) -> list[CloseReport]:
        """Until the end; raises what ended it."""
        main_thread = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGHUP, self._hang_up) if main_thread else None
        close_timeout = self._source.config.close_timeout
        try:
            with self._bar:
                return consume(
                    self._consumers,
                    self._ending,
                    close_timeout=close_timeout,
                    tick=lambda: self._tick(finder),
                )
        finally:
            with self._lock:
                for files in self._files.values():
                    files.close()
            if main_thread:
                signal.signal(signal.SIGHUP, before)

    def _hang_up(self, _number: int, _frame: object) -> None:
        """As of logrotate: files are ended, and new ones begun."""
        self._reopen = True

    def _tick(self, finder: Finder | None) -> None:
        with self._lock:
            reopen, self._reopen = self._reopen, False
            for files in self._files.values():
                if reopen:
                    files.close()
                files.tick()
        for consumer in self.add(finder.find() if finder else ()):
            consumer.on_end(self._ending.end)
            consumer.start()

    def _handler(self, files: Files) -> Callable[[list[Message]], None]:
        def write(messages: list[Message]) -> None:
            self._ending.begin()
            with self._lock:
                room = len(messages) if self._most is None else self._most - self.written
                try:
                    files.write(messages[:room])
                except (ConfigError, OSError) as error:
                    self._ending.end(error)
                    keep(messages)
                    return
                self.written += len(messages[:room])
                if self.written == self._most:
                    self._ending.end()
            self._bar.advance(len(messages[:room]))
            keep(messages[room:])

        return write
