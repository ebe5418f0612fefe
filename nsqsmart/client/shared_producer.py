"""The one producer of a process that ``nsqsmart.publish`` uses."""

from __future__ import annotations

from typing import Any

from nsqsmart.client.producer import Producer
from nsqsmart.client.receipt import Receipt

_producers: list[Producer] = []


def publish(topic: str, body: bytes, **arguments: Any) -> Receipt:
    """Publish with a Producer that is made on first use, and lives as long as the process.

    Its address and options come from the environment (``NSQSMART_URL`` and ``NSQSMART_*``). The
    arguments, and what is raised, are those of :meth:`nsqsmart.Producer.publish`.
    """
    if not _producers:
        # Two threads may get here at once: the first one in the list is used, by both.
        _producers.append(Producer())
    return _producers[0].publish(topic, body, **arguments)
