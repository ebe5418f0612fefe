"""Batches that are too large for one command, sent one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nsqsmart.client.publication import Publication
from nsqsmart.client.publish_call import publish
from nsqsmart.client.publisher import Publisher
from nsqsmart.client.receipt import Receipt
from nsqsmart.errors import PublishError

# Larger batches are not faster, and a fifth of what nsqd takes by default.
_MAX_BYTES = 1024 * 1024
_MAX_MESSAGES = 1000


def publish_split(shared: Publisher, whole: Publication, deadline: float) -> Receipt:
    """Publish the parts of *whole* in order; ends with the first one that fails.

    The receipt is that of the first part, but for ``count``, ``attempts`` (the most that a part
    took) and ``size`` (the sum).
    """
    first: Receipt | None = None
    for start, stop in _parts(whole.bodies):
        part = whole._replace(
            bodies=whole.bodies[start:stop], trace_ids=whole.trace_ids[start:stop]
        )
        try:
            receipt = publish(shared, part, deadline)
        except PublishError as error:
            error.accepted = start
            raise
        if first is None:
            first = receipt
            continue
        sizes = first.size is not None and receipt.size is not None
        first = replace(
            first,
            count=first.count + receipt.count,
            attempts=max(first.attempts, receipt.attempts),
            size=(first.size or 0) + (receipt.size or 0) if sizes else None,
        )
    assert first is not None  # noqa: S101 - there is at least one body
    return first


def _parts(bodies: tuple[bytes, ...]) -> Iterator[tuple[int, int]]:
    """Where the parts begin and end."""
    start = size = 0
    for number, body in enumerate(bodies):
        if number > start and (size + len(body) > _MAX_BYTES or number - start >= _MAX_MESSAGES):
            yield start, number
            start, size = number, 0
        size += len(body)
    yield start, len(bodies)
