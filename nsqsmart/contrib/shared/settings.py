"""What the settings of a project say of its servers, and of its producers and consumers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nsqsmart import Producer
from nsqsmart.config import ConsumerConfig, Endpoint, ProducerConfig, read_options, resolve
from nsqsmart.errors import ConfigError
from nsqsmart.names import Dialect
from nsqsmart.testing.recording import Outbox, RecordingProducer

PUBLISH_TIMEOUT = 5.0
"""Seconds; a request that waited for 60 would have been given up by its browser."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Of one alias, or of one app.

    Attributes:
        where: the name of the settings, for errors.
        url: the address; None for that of the environment.
        options: for producers and consumers; *source* is their name, for errors.
        dialect: which servers these are; None where the settings do not say it.
    """

    where: str
    url: str | None
    options: Mapping[str, Any]
    source: str
    dialect: str | None = None

    @property
    def best_effort(self) -> bool:
        """Whether a key may be sent without order."""
        return self.options.get("ordering") == "best-effort"

    def target(self) -> tuple[Endpoint, ProducerConfig]:
        """Where a producer goes, and what it is told; raises ConfigError."""
        try:
            return self._target()
        except ConfigError as error:
            raise ConfigError(f"{self.where}: {error}") from error

    def _target(self) -> tuple[Endpoint, ProducerConfig]:
        if not isinstance(self.options, Mapping):
            raise ConfigError(
                f"the options from {self.source} must be a dict, not {self.options!r}"
            )
        if self.url is not None and not isinstance(self.url, str):
            raise ConfigError(
                f"the URL beside {self.source} must be a str, not {type(self.url).__name__}"
            )
        usual = {"publish_timeout": PUBLISH_TIMEOUT}
        return resolve(ProducerConfig, self.url, self.options_of(ProducerConfig), defaults=usual)

    def options_of(self, kind: type[ProducerConfig | ConsumerConfig]) -> dict[str, Any]:
        """The options that one *kind* of client knows; raises ConfigError."""
        return read_options(kind, self.options, self.source, shared=True)

    def make_producer(self) -> Producer:
        """A real one; raises ConfigError."""
        config = self.target()[1]
        # As keywords too: a config alone would lose to the query of the URL.
        return Producer(self.url, config=config, **self.options_of(ProducerConfig))

    def make_recorder(self, outbox: Outbox, alias: str = "default") -> RecordingProducer:
        """One that sends nothing, and refuses what these servers would."""
        ordering = str(self.options.get("ordering", "required"))
        return RecordingProducer(outbox, alias=alias, dialect=self.dialect, ordering=ordering)


def check_dialect(dialect: object, source: str) -> str | None:
    """*dialect*, of the settings at *source*; raises ConfigError."""
    known = tuple(map(str, Dialect))
    if dialect is not None and dialect not in known:
        raise ConfigError(f"{source} {dialect!r} is none of {', '.join(known)}")
    return None if dialect is None else str(dialect)
