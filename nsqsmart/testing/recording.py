"""A producer that sends nothing and remembers everything, and what a test asks of it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from nsqsmart import Pending, Producer, ProducerConfig, Receipt
from nsqsmart.errors import ClientClosed, ConfigError, NotSupported, OrderingNotSupported
from nsqsmart.names import Dialect

_NOWHERE = "nsq://nowhere.invalid:4150"
_NSQD = "recorded:0"
_SHOWN = 20
_WIDTH = 120

Key = str | int | bytes


@dataclass(frozen=True, slots=True)
class Published:
    """One message that would have been sent.

    Attributes:
        topic, body, key, headers, tag, partition: as they were given.
        delay: seconds.
        trace_id: None unless it was to be traced.
        alias: which of several producers it was given to.
    """

    topic: str
    body: bytes
    key: Key | None = None
    delay: float | None = None
    headers: Mapping[str, Any] | None = None
    tag: str | None = None
    trace_id: int | None = None
    alias: str = "default"
    partition: int | None = None

    def json(self) -> Any:
        """The body read as JSON; raises ValueError if it is none."""
        return json.loads(self.body)


class Outbox(list[Published]):
    """What was published, in order; a list. Any thread may add to it."""

    def bodies(self, topic: str) -> list[bytes]:
        """The bodies published to *topic*, in order."""
        return [each.body for each in self if each.topic == topic]


outbox: Final = Outbox()
"""Where integrations that record in tests put everything; clear it before each test."""


class RecordingProducer(Producer):
    """Takes what a :class:`nsqsmart.Producer` takes, refuses what that refuses, sends nothing.

    It never connects, whatever the environment says: ``ping`` finds nothing, and every receipt
    names the nsqd ``recorded:0``.

    Args:
        outbox: where every message goes, as :class:`Published`; default: an Outbox of its own.
        alias: the name it notes in each of them.
        dialect: "original" or "redesigned": it refuses what such servers do, with the same errors;
            default: it takes what any server takes.
        ordering: as the option of a Producer; "best-effort" takes a ``key=`` for original servers.

    Raises ConfigError for a dialect or an ordering that there is none of.
    """

    def __init__(
        self,
        outbox: Outbox | None = None,
        *,
        alias: str = "default",
        dialect: str | None = None,
        ordering: str = "required",
    ) -> None:
        super().__init__(_NOWHERE, config=ProducerConfig(ordering=ordering))
        if dialect not in (None, *Dialect):
            known = " and ".join(map(repr, map(str, Dialect)))
            raise ConfigError(f"dialect {dialect!r}: there are {known}")
        self.outbox = Outbox() if outbox is None else outbox
        self.alias = alias
        self.dialect = dialect
        self.ordering = ordering

    def publish(
        self,
        topic: str,
        body: bytes,
        *,
        key: Key | None = None,
        partition: int | None = None,
        trace: bool | None = None,
        trace_id: int | None = None,
        headers: Mapping[str, Any] | None = None,
        tag: str | None = None,
        delay: float | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Remember *body*; the arguments, and what they raise, are those of a Producer."""
        body = self.check(
            topic,
            body,
            key=key,
            partition=partition,
            trace_id=trace_id,
            headers=headers,
            tag=tag,
            delay=delay,
            timeout=timeout,
        )
        self._check_open()
        adorned = bool(headers) or tag is not None
        if self.dialect == Dialect.ORIGINAL:
            self._check_order(topic, key, partition)
            _refuse(topic, self.dialect, "headers= and tag=", wanted=adorned)
            _refuse(topic, self.dialect, "trace=", wanted=bool(trace) or trace_id is not None)
        elif self.dialect == Dialect.REDESIGNED:
            _refuse(topic, self.dialect, "delay=", wanted=delay is not None)
        traced = _trace_id(trace=trace) if trace_id is None else trace_id
        kept = None if headers is None else dict(headers)
        published = Published(topic, body, key, delay, kept, tag, traced, self.alias, partition)
        self.outbox.append(published)
        return Receipt(topic, partition, _NSQD, trace_id=traced)

    def publish_many(
        self,
        topic: str,
        bodies: Iterable[bytes],
        *,
        key: Key | None = None,
        partition: int | None = None,
        trace: bool | None = None,
        headers: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        split: bool = False,  # noqa: ARG002 - there is nothing to split
    ) -> Receipt:
        """Remember each of *bodies* as one message."""
        checked = self.check_many(
            topic, bodies, key=key, partition=partition, headers=headers, timeout=timeout
        )
        receipts = [
            self.publish(topic, body, key=key, partition=partition, trace=trace, headers=headers)
            for body in checked
        ]
        traced = receipts[0].trace_id
        return Receipt(topic, partition, _NSQD, trace_id=traced, count=len(receipts))

    def publish_async(self, topic: str, body: bytes, **arguments: Any) -> Pending:
        """Remember *body* at once."""
        receipt = self.publish(topic, body, **arguments)
        pending = Pending(topic, body, None, 0.0, 0.0)
        pending.settle(receipt)
        return pending

    def warm(self, *topics: str, timeout: float | None = None) -> None:
        """There is nothing to connect to."""

    def ping(self, timeout: float | None = None) -> dict[str, float]:  # noqa: ARG002 - as above
        """Return {}: there is no nsqd to answer."""
        self._check_open()
        return {}

    def __repr__(self) -> str:
        return f"<RecordingProducer {self.alias}, {len(self.outbox)} published>"

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("the Producer was closed")

    def _check_order(self, topic: str, key: Key | None, partition: int | None) -> None:
        loose = partition is None and self.ordering == "best-effort"
        if not loose and not (key is None and partition is None):
            raise OrderingNotSupported(
                f"topic {topic!r} is on an original NSQ, which has no partitions",
                hint='publish without key= and partition=, or say ordering="best-effort"',
            )

    def _running(self) -> Any:
        # Whatever the real one will learn to do: a test never reaches a network through this.
        raise RuntimeError("a RecordingProducer has no connection")


def assert_published(
    outbox: Iterable[Published],
    topic: str,
    *,
    contains: Mapping[str, Any] | bytes | str | None = None,
    body: bytes | None = None,
    key: Key | None = None,
    times: int | None = None,
) -> list[Published]:
    """Assert that *outbox* holds messages that match all that is given; returns them.

    Args:
        outbox: what was published.
        topic: the topic of a match.
        contains: a part of the body: bytes or text somewhere in it, or a dict whose items are all
            in the object that the body is in JSON.
        body: the whole body.
        key: the key.
        times: how many must match, 0 for none; default: one or more.

    Raises AssertionError, which tells what was published instead.
    """
    everything = list(outbox)
    found = [
        each
        for each in everything
        if each.topic == topic
        and (body is None or each.body == body)
        and (key is None or each.key == key)
        and (contains is None or _contains(each.body, contains))
    ]
    if len(found) == times or (times is None and found):
        return found
    given = {"contains": contains, "body": body, "key": key}
    wanted = "".join(f", {name}={value!r}" for name, value in given.items() if value is not None)
    often = {0: "no message matches", 1: "1 message matches"}.get(
        len(found), f"{len(found)} messages match"
    )
    expected = "at least 1" if times is None else f"exactly {times}"
    raise AssertionError(
        f"{often} topic={topic!r}{wanted}: expected {expected}\n{_describe(everything)}"
    )


def _refuse(topic: str, dialect: str, arguments: str, *, wanted: bool) -> None:
    if wanted:
        raise NotSupported(
            f"topic {topic!r} is on {'an' if dialect == Dialect.ORIGINAL else 'a'} {dialect} NSQ, "
            f"which does not support {arguments}",
            hint=f"publish without {arguments}",
        )


def _contains(body: bytes, part: Mapping[str, Any] | bytes | str) -> bool:
    if isinstance(part, str):
        return part.encode() in body
    if isinstance(part, bytes):
        return part in body
    try:
        value = json.loads(body)
    except ValueError:
        return False
    return isinstance(value, dict) and all(
        name in value and value[name] == wanted for name, wanted in part.items()
    )


def _describe(everything: list[Published]) -> str:
    if not everything:
        return "nothing was published"
    lines = [f"published were {len(everything)}:"]
    for each in everything[:_SHOWN]:
        key = "" if each.key is None else f" key={each.key!r}"
        shown = repr(each.body[:_WIDTH]) + ("..." if len(each.body) > _WIDTH else "")
        lines.append(f"  {each.alias}: {each.topic}{key} {shown}")
    if len(everything) > _SHOWN:
        lines.append(f"  and {len(everything) - _SHOWN} more")
    return "\n".join(lines)


def _trace_id(*, trace: bool | None) -> int | None:
    return (secrets.randbits(63) or 1) if trace else None
