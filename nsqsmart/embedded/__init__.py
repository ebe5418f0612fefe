"""A cluster in this process, for tests and first steps.

>>> with Cluster(dialect="redesigned", nsqds=3, lookupds=2) as cluster:
...     cluster.create_topic("orders", partitions=3, replicas=2, ordered=True)
...     cluster.url
'nsq+lookupd://127.0.0.1:...,127.0.0.1:...'

Both dialects are spoken to the byte, and the servers are as strict as the real ones; see
:class:`~nsqsmart.embedded.cluster.Cluster`. ``python -m nsqsmart.embedded nsqd`` (or
``nsqlookupd``) runs one server as a program of its own. Nothing here is meant for production.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqsmart.embedded import faults
    from nsqsmart.embedded.cluster import Cluster, Stored
    from nsqsmart.embedded.cluster_options import REAL_TIMES
    from nsqsmart.embedded.named import get, stop

__all__ = ["REAL_TIMES", "Cluster", "Stored", "faults", "get", "stop"]

_HOMES = {
    "REAL_TIMES": "nsqsmart.embedded.cluster_options",
    "Cluster": "nsqsmart.embedded.cluster",
    "Stored": "nsqsmart.embedded.cluster",
    "get": "nsqsmart.embedded.named",
    "stop": "nsqsmart.embedded.named",
}


def __getattr__(name: str) -> Any:
    # The stand-in programs go through here too, and must start at once.
    from importlib import import_module  # noqa: PLC0415

    if name == "faults":
        return import_module("nsqsmart.embedded.faults")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
