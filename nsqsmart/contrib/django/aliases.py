"""The producers of the process, one for each alias, made on first use."""

from __future__ import annotations

from typing import Any

from nsqsmart import Producer
from nsqsmart.contrib.django import conf
from nsqsmart.contrib.shared.settings import PUBLISH_TIMEOUT
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
        entry = conf.get_alias(alias)
        records = conf.in_tests() and not entry.sends_in_tests
        found = self._made.get((alias, records))
        if found is not None:
            return found
        made = entry.make_recorder(outbox, alias) if records else entry.make_producer()
        # If another thread was faster, this one has not connected yet.
        return self._made.setdefault((alias, records), made)

    def close(self) -> None:
        """Close them all; they are made anew when they are asked for."""
        while self._made:
            _, producer = self._made.popitem()
            producer.close()


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
