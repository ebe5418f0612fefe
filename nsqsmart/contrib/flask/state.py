"""What belongs to one app: its settings, its producer, and in tests its outbox."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any, Final

from flask import Flask

from nsqsmart import Producer
from nsqsmart.config import ConsumerConfig, ProducerConfig, options_of, read_options
from nsqsmart.contrib.shared.declaring import Declared
from nsqsmart.contrib.shared.delivering import Tally
from nsqsmart.contrib.shared.fitting import Use, check_dialect
from nsqsmart.contrib.shared.producing import PUBLISH_TIMEOUT, make_producer, read_target
from nsqsmart.errors import ConfigError
from nsqsmart.testing.recording import Outbox, RecordingProducer

URL: Final = "NSQSMART_URL"
OPTIONS: Final = "NSQSMART_OPTIONS"
DIALECT: Final = "NSQSMART_DIALECT"
_SETTINGS: Final = (URL, OPTIONS, DIALECT)
_SOURCE: Final = f"app.config[{OPTIONS!r}]"


class State:
    """One app, registered with *owner*, an NSQ."""

    def __init__(self, app: Flask, owner: object) -> None:
        self.app = app
        self.owner = owner
        self.outbox = Outbox()
        self.tally = Tally()
        # Without a lock, which a fork could leave locked: setdefault decides.
        self._made: dict[bool, Producer] = {}

    @property
    def url(self) -> str | None:
        """The address in the config; None for that of the environment."""
        found = self.app.config.get(URL)
        if found is not None and not isinstance(found, str):
            raise ConfigError(f"app.config[{URL!r}] must be a str, not {type(found).__name__}")
        return found or None

    @property
    def dialect(self) -> str | None:
        """What the config says of the servers; raises ConfigError."""
        return check_dialect(self.app.config.get(DIALECT), f"app.config[{DIALECT!r}]")

    @property
    def records(self) -> bool:
        """Whether it is a test that has not said where to publish."""
        return bool(self.app.config.get("TESTING")) and self.url is None

    @property
    def producer(self) -> Producer:
        """The app's own, made on first use; raises ConfigError."""
        found = self._made.get(self.records)
        if found is not None:
            return found
        made = self._make_recorder() if self.records else self.make_producer()
        # If another thread was faster, this one has not connected yet.
        return self._made.setdefault(self.records, made)

    def find_producer(self) -> tuple[Producer, float]:
        """The producer, and how many seconds its config gives a publish; raises ConfigError."""
        return self.producer, PUBLISH_TIMEOUT if self.records else self.target().publish_timeout

    def make_producer(self) -> Producer:
        """A real one, as the config has it; raises ConfigError."""
        return make_producer(self.url, self._options(), _SOURCE, self.target())

    def _make_recorder(self) -> RecordingProducer:
        ordering = str(self._options().get("ordering", "required"))
        return RecordingProducer(self.outbox, dialect=self.dialect, ordering=ordering)

    def use(self, handlers: Collection[Declared]) -> Use:
        """What the config and *handlers* have declared; raises ConfigError."""
        return Use(self.dialect, self._options(), _SOURCE, handlers)

    def close(self) -> None:
        """Close the producer; the next use makes another."""
        while self._made:
            _, producer = self._made.popitem()
            producer.close()

    def target(self) -> ProducerConfig:
        """The options of a producer; raises ConfigError."""
        try:
            return read_target(self.url, self._options(), _SOURCE)[1]
        except ConfigError as error:
            raise ConfigError(f"app.config: {error}") from error

    def consumer_options(self) -> dict[str, Any]:
        """The options of a consumer that are in the config; raises ConfigError."""
        return read_options(ConsumerConfig, self._options(), _SOURCE, shared=True)

    def check(self) -> None:
        """Raise ConfigError for what is wrong already; an address may come later."""
        for name in self.app.config:
            if name.startswith("NSQSMART_") and name not in _SETTINGS:
                raise ConfigError(f"app.config[{name!r}] is not a setting: {_hint(name)}")
        check_dialect(self.app.config.get(DIALECT), f"app.config[{DIALECT!r}]")
        read_options(ProducerConfig, self._options(), _SOURCE, shared=True)
        if self.url is not None:
            self.target()

    def _options(self) -> Mapping[str, Any]:
        found = self.app.config.get(OPTIONS, {})
        if not isinstance(found, Mapping):
            raise ConfigError(f"{_SOURCE} must be a dict, not {type(found).__name__}")
        return found


def _hint(name: str) -> str:
    option = name.removeprefix("NSQSMART_").lower()
    if option in options_of(ProducerConfig) or option in options_of(ConsumerConfig):
        return f"put {option!r} into {OPTIONS}"
    near = difflib.get_close_matches(name, _SETTINGS, n=1)
    return f"did you mean {near[0] if near else OPTIONS}?"
