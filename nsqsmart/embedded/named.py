"""The clusters behind ``nsq+embedded://NAME`` addresses: one per name and process."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any

from nsqsmart.embedded.cluster import Cluster

_lock = threading.Lock()
_clusters: dict[str, Cluster] = {}
_owner = 0


def _number(name: str, text: object) -> int:
    value = text if isinstance(text, int) and not isinstance(text, bool) else str(text)
    if isinstance(value, str) and not value.isdigit():
        raise ValueError(f"nsq+embedded option {name}={text!r} is not a number")
    return int(value)


def _dialect(name: str, text: object) -> str:
    if text not in ("original", "redesigned"):
        raise ValueError(f"nsq+embedded option {name}={text!r} is neither original nor redesigned")
    return str(text)


_OPTIONS: dict[str, Callable[[str, object], Any]] = {
    "dialect": _dialect,
    "lookupds": _number,
    "nsqds": _number,
    "partitions": _number,
    "replicas": _number,
}


def get(name: str, **options: object) -> Cluster:
    """The cluster *name*, made on first use; it ends with the process, or by :func:`stop`.

    Options are those of the address: ``dialect``, ``nsqds``, ``lookupds``, ``partitions`` and
    ``replicas``, as numbers or text; they count only when the cluster is made. Raises ValueError
    for any other, or an unusable value. A forked child uses the parent's cluster.
    """
    global _owner  # noqa: PLW0603 - the process that made the clusters
    values = {}
    for option, value in options.items():
        if option not in _OPTIONS:
            known = ", ".join(sorted(_OPTIONS))
            raise ValueError(f"nsq+embedded option {option!r} is unknown; there are {known}")
        values[option] = _OPTIONS[option](option, value)
    with _lock:
        cluster = _clusters.get(name)
        if cluster is None:
            values.setdefault("nsqds", max(1, values.get("replicas", 1)))
            cluster = _clusters[name] = Cluster(auto_create=True, log=False, **values)
            if not _owner:
                _owner = os.getpid()
                atexit.register(_stop_all)
        return cluster


def stop(name: str) -> None:
    """End the cluster *name*; nothing happens if there is none."""
    with _lock:
        cluster = _clusters.pop(name, None)
    if cluster is not None and os.getpid() == _owner:
        cluster.close()


def _stop_all() -> None:
    for name in list(_clusters):
        stop(name)
