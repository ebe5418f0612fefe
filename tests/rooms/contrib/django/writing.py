"""What tests of the outbox begin with."""

from __future__ import annotations

from nsqsmart.contrib.django import publish


def write(database: str, number: int, key: str | None = "a", topic: str = "orders") -> None:
    """A message of that number into the outbox of *database*."""
    publish(topic, b"%d" % number, key=key, when="outbox", using=database)
