"""The producers of the process, one for each alias, made on first use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nsqsmart import Producer
from nsqsmart.contrib.django import conf
from nsqsmart.contrib.shared.declaring import Declared
from nsqsmart.contrib.shared.fitting import Use
from nsqsmart.contrib.shared.producing import PUBLISH_TIMEOUT
from nsqsmart.contrib.shared.producing import make_producer as make_with
from nsqsmart.testing.recording import RecordingProducer, outbox


class Producers:
    """A Producer by its alias: ``producers["default"]``.

    Any thread may ask, and a child of a fork goes on with them. In tests they are recording ones,
    unless the alias says ``"IN_TESTS": "send"``.
    """

    def __init__(self) -> None:
        # Without a lock, which a fork could leave locked in the child: setdefault decides.
        self._made: dict[tuple[str, bool], Producer] = {}

    def __getitem__(self, alias: str) -> Producer:
        records = conf.in_tests() and not conf.get_alias(alias).sends_in_tests
        found = self._made.get((alias, records))
        if found is not None:
            return found
        made = make_recorder(alias) if records else make_producer(alias)
        # If another thread was faster, this one has not connected yet.
        return self._made.setdefault((alias, records), made)

    def close(self) -> None:
        """Close them all; they are made anew when they are asked for."""
        while self._made:
            _, producer = self._made.popitem()
            producer.close()


def make_recorder(alias: str) -> RecordingProducer:
    """One that sends nothing, and refuses what the servers of the settings would."""
    entry = conf.get_alias(alias)
    ordering = str(entry.options.get("ordering", "required"))
    return RecordingProducer(outbox, alias=alias, dialect=entry.dialect, ordering=ordering)


def use_of(alias: str, handlers: Iterable[Declared]) -> Use:
    """What the settings, and those of *handlers* that belong to *alias*, have declared."""
    entry = conf.get_alias(alias)
    own = [each for each in handlers if each.alias == alias]
    return Use(entry.dialect, entry.options, entry.source, own)


def make_producer(alias: str) -> Producer:
    """A real one, as the settings have it; raises ConfigError."""
    entry = conf.get_alias(alias)
    _, config = entry.target()
    return make_with(entry.url, entry.options, entry.source, config)


def find_producer(alias: str) -> tuple[Producer, float]:
    """The producer, and how many seconds its settings give a publish; raises ConfigError."""
    producer = producers[alias]
    if isinstance(producer, RecordingProducer):
        return producer, PUBLISH_TIMEOUT
    return producer, conf.get_alias(alias).target()[1].publish_timeout


def on_setting_changed(*, setting: str, **_others: Any) -> None:
    """A test overrides the settings, or ends to do so."""
    if setting == "NSQSMART":
        conf.forget()
        producers.close()


producers = Producers()
