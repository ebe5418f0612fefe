"""``nsq+embedded://`` made real: the cluster of that name in this process, on first use."""

from __future__ import annotations

import importlib
from dataclasses import asdict

from nsqsmart.config import Endpoint, embedded_config


def prepare_endpoint(endpoint: Endpoint) -> None:
    """Import what looking up needs, and what nobody else pays for.

    When a client is made, not when one thread first looks up: a process that forks just then would
    hand its child the lock of an import that nobody there will ever end.
    """
    if endpoint.discovers or endpoint.embedded:
        importlib.import_module("nsqsmart.net.http_session")


def open_endpoint(endpoint: Endpoint) -> Endpoint:
    """*endpoint* itself, or where the embedded cluster that it names listens."""
    if not endpoint.embedded:
        return endpoint
    # By name: the embedded cluster is a room, and no floor imports one.
    embedded = importlib.import_module("nsqsmart.embedded")
    cluster = embedded.get(endpoint.name, **asdict(embedded_config(endpoint)))
    return Endpoint.parse(cluster.url)
