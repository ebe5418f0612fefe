"""What one call is to publish, and the command that says it to an nsqd of either dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from nsqsmart.client.publish_errors import NotSupported
from nsqsmart.client.trace_log import pass_over
from nsqsmart.policy.routing import Key
from nsqsmart.policy.topology import Target
from nsqsmart.wire import commands
from nsqsmart.wire.ext import encode_header

_BATCH_TRACE = 0
"""The trace id in the receipt of MPUB_TRACE (protocol 2.14)."""


class Publication(NamedTuple):
    """The arguments of one call, checked.

    ``batch`` makes it one MPUB, of however many bodies. ``trace_ids`` has one for each body, or is
    empty; ``must_trace`` tells that the caller asked for it, not the configuration. ``delay`` is in
    milliseconds.
    """

    topic: str
    bodies: tuple[bytes, ...]
    key: Key | None = None
    partition: int | None = None
    trace_ids: tuple[int, ...] = ()
    must_trace: bool = False
    headers: Mapping[str, Any] | None = None
    tag: str | None = None
    delay: int | None = None
    batch: bool = False

    @property
    def keyed(self) -> bool:
        """Whether it belongs to one partition and to no other."""
        return self.key is not None or self.partition is not None


class Command(NamedTuple):
    """The bytes, and the trace id that the receipt must show; None if there is no such receipt."""

    data: bytes
    traced: int | None = None


def build(publication: Publication, target: Target, *, extended: bool) -> Command:
    """The command for *target*; *extended* tells whether the topic takes headers.

    Raises NotSupported for what it can never take.
    """
    if target.partition is None:
        return _original(publication, target)
    if publication.delay is not None:
        raise NotSupported(
            f"{target.address} is a redesigned nsqd, which has no deferred publishing",
            hint="publish without delay=, and have the consumer requeue it with one",
        )
    adorned = bool(publication.headers) or publication.tag is not None
    if adorned and not extended:
        raise NotSupported(
            f"topic {publication.topic!r} takes no headers",
            hint="make the topic with extend_support, or publish without headers= and tag=",
        )
    if extended and (adorned or publication.trace_ids):
        return _extended(publication, target.partition)
    if publication.trace_ids:
        return _traced(publication, target.partition)
    return _plain(publication, target.partition)


def _original(publication: Publication, target: Target) -> Command:
    asked = {
        "headers= and tag=": bool(publication.headers) or publication.tag is not None,
        "trace= and trace_id=": bool(publication.trace_ids) and publication.must_trace,
    }
    for names, wanted in asked.items():
        if wanted:
            raise NotSupported(
                f"{target.address} is an original nsqd, which has none of that",
                hint=f"publish without {names}",
            )
    if publication.trace_ids:
        pass_over(publication.topic, target.name)
    if publication.delay is not None:
        return Command(commands.dpub(publication.topic, publication.bodies[0], publication.delay))
    return _plain(publication, None)


def _plain(publication: Publication, partition: int | None) -> Command:
    if publication.batch:
        return Command(commands.mpub(publication.topic, publication.bodies, partition))
    return Command(commands.pub(publication.topic, publication.bodies[0], partition))


def _traced(publication: Publication, partition: int) -> Command:
    topic, bodies, trace_ids = publication.topic, publication.bodies, publication.trace_ids
    if publication.batch:
        entries = zip(trace_ids, bodies, strict=True)
        return Command(commands.mpub_trace(topic, entries, partition), _BATCH_TRACE)
    (trace_id,) = trace_ids
    return Command(commands.pub_trace(topic, bodies[0], trace_id, partition), trace_id)


def _extended(publication: Publication, partition: int) -> Command:
    trace_ids: tuple[int | None, ...] = publication.trace_ids or (None,) * len(publication.bodies)
    headers = [
        encode_header(publication.headers, tag=publication.tag, trace_id=trace_id)
        for trace_id in trace_ids
    ]
    if publication.batch:
        # Answered by a plain OK even with trace ids (protocol 2.16).
        entries = zip(headers, publication.bodies, strict=True)
        return Command(commands.mpub_ext(publication.topic, entries, partition))
    (trace_id,) = trace_ids
    data = commands.pub_ext(publication.topic, publication.bodies[0], headers[0], partition)
    return Command(data, trace_id)
