"""Handlers as a project declares them: a function with a topic and a channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nsqsmart.config import ConsumerConfig, read_options
from nsqsmart.errors import ConfigError
from nsqsmart.names import check_channel, check_topic


@dataclass(frozen=True, slots=True)
class Declared:
    """One handler.

    Attributes:
        topic, channel: what it consumes.
        function: takes a message; or a list of them, if *batch*.
        options: of its Consumer.
        alias: of the settings that say where its servers are.
        owner: what it belongs to, if it counts only with that; compared by identity.
        atomic: the database whose transaction it runs in, or None.
    """

    topic: str
    channel: str
    function: Callable[..., object]
    options: Mapping[str, Any]
    batch: bool = False
    alias: str = "default"
    owner: object = None
    atomic: str | None = None

    @property
    def name(self) -> str:
        """The handler's module and qualified name."""
        module = getattr(self.function, "__module__", "?")
        return f"{module}.{getattr(self.function, '__qualname__', repr(self.function))}"

    @property
    def place(self) -> tuple[str, str, str]:
        """What no other handler may consume."""
        return self.alias, self.topic, self.channel


def declare(
    function: Callable[..., object], topic: str, channel: str, options: Mapping[str, Any]
) -> Declared:
    """Check what a decorator was given; raises TypeError and ConfigError."""
    if not callable(function):
        raise TypeError(f"a handler must be callable, not {type(function).__name__}")
    made = Declared(check_topic(topic), check_channel(channel), function, {})
    checked = read_options(ConsumerConfig, options, f"the handler {made.name}")
    return Declared(topic, channel, function, checked)


def find_twice(handlers: list[Declared]) -> list[str]:
    """What is wrong where two handlers share a channel: each would get half of the messages."""
    first: dict[tuple[str, str, str], Declared] = {}
    wrong = []
    for each in handlers:
        other = first.setdefault(each.place, each)
        if other is not each:
            wrong.append(
                f"{other.name} and {each.name} both consume topic {each.topic!r} on channel "
                f"{each.channel!r}: each would get a part of the messages"
            )
    return wrong


def choose(
    handlers: list[Declared], *, topic: str | None, channel: str | None, alias: str | None = None
) -> list[Declared]:
    """Those with this topic, channel and alias, None being any; raises ConfigError if none is."""
    if not handlers:
        raise ConfigError("no handler is declared: decorate a function with the handler decorator")
    wrong = find_twice(handlers)
    if wrong:
        raise ConfigError(wrong[0])
    wanted = {"topic": topic, "channel": channel, "alias": alias}
    found = [
        each
        for each in handlers
        if all(value is None or getattr(each, name) == value for name, value in wanted.items())
    ]
    if not found:
        asked = " and ".join(f"{name} {value}" for name, value in wanted.items() if value)
        there = ", ".join(sorted(f"{each.topic}/{each.channel}" for each in handlers))
        raise ConfigError(f"no handler has {asked}: there are {there}")
    return found
