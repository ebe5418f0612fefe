"""A message that is to be published later: at a commit, or by the relay of an outbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, Unpack

from nsqsmart import Producer, PublishArguments

Key = str | int | bytes


@dataclass(frozen=True, slots=True)
class Letter:
    """One message with all that was said of it.

    Attributes:
        topic, body: as they were given; the body is a copy.
        alias: whose producer it goes with.
        arguments: those of ``Producer.publish`` that were given, by name.
    """

    topic: str
    body: bytes
    alias: str
    arguments: Mapping[str, Any]

    @classmethod
    def write(
        cls, topic: str, body: bytes, alias: str, **arguments: Unpack[PublishArguments]
    ) -> Self:
        """Check and copy what ``Producer.publish`` will be given.

        Raises TypeError and ConfigError, as that does.
        """
        checked = Producer.check(topic, body, **arguments)
        given = {name: value for name, value in arguments.items() if value is not None}
        if arguments.get("headers") is not None:
            given["headers"] = dict(arguments["headers"] or {})
        return cls(topic, checked, alias, given)

    @property
    def key(self) -> Key | None:
        """The key of the message, or None."""
        found: Key | None = self.arguments.get("key")
        return found

    @property
    def partition(self) -> int | None:
        """The partition it was given for, if any."""
        found: int | None = self.arguments.get("partition")
        return found
