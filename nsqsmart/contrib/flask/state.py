"""What belongs to one app: its settings, its producer, and in tests its outbox."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from flask import Flask

from nsqsmart import Producer
from nsqsmart.config import ConsumerConfig, ProducerConfig, options_of
from nsqsmart.contrib.shared.delivering import Tally
from nsqsmart.contrib.shared.settings import PUBLISH_TIMEOUT, Settings, check_dialect
from nsqsmart.errors import ConfigError
from nsqsmart.testing.recording import Outbox

URL: Final = "NSQSMART_URL"
OPTIONS: Final = "NSQSMART_OPTIONS"
DIALECT: Final = "NSQSMART_DIALECT"
_SETTINGS: Final = (URL, OPTIONS, DIALECT)
_SOURCE: Final = f"app.config[{OPTIONS!r}]"


class AppState:
    """One app, registered with *owner*, an NSQ."""

    def __init__(self, app: Flask, owner: object) -> None:
        self.app = app
        self.owner = owner
        self.outbox = Outbox()
        self.tally = Tally()
        # Without a lock, which a fork could leave locked: setdefault decides.
        self._made: dict[bool, Producer] = {}

    @property
    def settings(self) -> Settings:
        """What the config says now; raises ConfigError."""
        config = self.app.config
        url, options = config.get(URL), config.get(OPTIONS, {})
        if url is not None and not isinstance(url, str):
            raise ConfigError(f"app.config[{URL!r}] must be a str, not {type(url).__name__}")
        if not isinstance(options, Mapping):
            raise ConfigError(f"{_SOURCE} must be a dict, not {type(options).__name__}")
        dialect = check_dialect(config.get(DIALECT), f"app.config[{DIALECT!r}]")
        return Settings(
            where="app.config", url=url or None, options=options, source=_SOURCE, dialect=dialect
        )

    @property
    def records(self) -> bool:
        """Whether it is a test that has not said where to publish."""
        return bool(self.app.config.get("TESTING")) and self.settings.url is None

    @property
    def producer(self) -> Producer:
        """The app's own, made on first use; raises ConfigError."""
        found = self._made.get(self.records)
        if found is not None:
            return found
        settings = self.settings
        made = settings.make_recorder(self.outbox) if self.records else settings.make_producer()
        # If another thread was faster, this one has not connected yet.
        return self._made.setdefault(self.records, made)

    def find_producer(self) -> tuple[Producer, float]:
        """The producer, and how many seconds its config gives a publish; raises ConfigError."""
        if self.records:
            return self.producer, PUBLISH_TIMEOUT
        return self.producer, self.settings.target()[1].publish_timeout

    def close(self) -> None:
        """Close the producer; the next use makes another."""
        while self._made:
            _, producer = self._made.popitem()
            producer.close()

    def check(self) -> None:
        """Raise ConfigError for what is wrong already; an address may come later."""
        for name in self.app.config:
            if name.startswith("NSQSMART_") and name not in _SETTINGS:
                raise ConfigError(f"app.config[{name!r}] is not a setting: {_hint(name)}")
        settings = self.settings
        settings.options_of(ProducerConfig)
        if settings.url is not None:
            settings.target()


def _hint(name: str) -> str:
    option = name.removeprefix("NSQSMART_").lower()
    if option in options_of(ProducerConfig) or option in options_of(ConsumerConfig):
        return f"put {option!r} into {OPTIONS}"
    near = difflib.get_close_matches(name, _SETTINGS, n=1)
    return f"did you mean {near[0] if near else OPTIONS}?"
