"""The one producer of a process that ``nsqsmart.publish`` uses."""

from __future__ import annotations

import os
from typing import Unpack

from nsqsmart.client.producer.producer import Producer
from nsqsmart.client.shared.arguments import PublishArguments
from nsqsmart.client.shared.receipt import Receipt

_producers: dict[str | None, Producer] = {}


def publish(
    topic: str,
    body: bytes,
    *,
    spool: str | os.PathLike[str] | None = None,
    **arguments: Unpack[PublishArguments],
) -> Receipt:
    """Publish with a Producer that is made on first use, and lives as long as the process.

    Its address and options come from the environment (``NSQSMART_URL`` and ``NSQSMART_*``). The
    other arguments, and what is raised, are those of :meth:`nsqsmart.Producer.publish`.

    Args:
        spool: the option of that name: a folder for what cannot be sent now. Each folder has a
            producer of its own.
    """
    folder = None if spool is None else os.fspath(spool)
    producer = _producers.get(folder)
    if producer is None:
        # Two threads may get here at once: one producer is used, by both.
        made = Producer() if folder is None else Producer(spool=folder)
        producer = _producers.setdefault(folder, made)
    return producer.publish(topic, body, **arguments)
