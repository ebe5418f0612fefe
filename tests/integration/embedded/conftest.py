"""Clusters for the tests of the embedded servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from nsqsmart.embedded import Cluster
from nsqsmart.embedded.nsqd.server import Nsqd
from tests.integration.embedded.rawclient import RawClient

Connect = Callable[..., RawClient]


@pytest.fixture
def redesigned() -> Iterator[Cluster]:
    with Cluster(dialect="redesigned", nsqds=3, lookupds=2, replication_timeout=0.1) as cluster:
        yield cluster


@pytest.fixture
def original() -> Iterator[Cluster]:
    with Cluster(dialect="original", nsqds=2, lookupds=2) as cluster:
        yield cluster


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connections that are closed at the end."""
    with ExitStack() as stack:

        def dial(nsqd: Nsqd, **options: Any) -> RawClient:
            connection = RawClient(nsqd.tcp_address, **options)
            stack.callback(connection.close)
            return connection

        yield dial
