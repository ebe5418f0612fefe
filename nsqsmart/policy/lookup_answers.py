"""What nsqlookupd answers, in both dialects and both envelopes (protocol 7).

Everything here comes from a peer: whatever has the wrong shape is skipped and counted, never
trusted, and only a document that is no answer at all raises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeGuard

from nsqsmart.errors import DiscoveryError
from nsqsmart.names import MAX_PARTITION, Address

_OK = 200
_NOT_FOUND = 404
_MAX_PORT = 65535
_MAX_HOST = 253
_UNKNOWN_TOPIC = frozenset({"TOPIC_NOT_FOUND", "Key not found"})
_NO_CHANNEL = "Topic has no channel"
# What an nsqd registers of itself; never a host to dial.
_UNUSABLE_HOSTS = ("0.0.0.0", "::", "255.255.255.255")  # noqa: S104 - refused, not bound


class Node(NamedTuple):
    """An nsqd as a lookup describes it."""

    address: Address
    http: Address
    version: str = ""


class TopicState(StrEnum):
    """What one lookup knows of a topic."""

    FOUND = "found"
    UNKNOWN = "unknown"
    NO_CHANNEL = "no_channel"


@dataclass(frozen=True, slots=True)
class TopicMeta:
    """What a redesigned lookup says of a topic itself."""

    partition_num: int = 0
    ordered: bool = False
    extended: bool = False


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """One lookup's answer for one topic; ``skipped`` counts entries that could not be used."""

    state: TopicState
    leaders: Mapping[int, Node]
    producers: tuple[Node, ...] = ()
    meta: TopicMeta = TopicMeta()
    redesigned: bool = False
    skipped: int = 0


class LookupPeers(NamedTuple):
    """The lookupds of a redesigned cluster: the leading one (if known), and all of them."""

    leader: Address | None
    members: tuple[Address, ...]


def parse_lookup(status: int, body: bytes) -> LookupAnswer:
    """Read the answer to ``/lookup``; raises :class:`DiscoveryError` if it is none."""
    status, data, text = _unwrap(status, body)
    if status != _OK:
        if text in _UNKNOWN_TOPIC or (status == _NOT_FOUND and not text.startswith(_NO_CHANNEL)):
            return LookupAnswer(TopicState.UNKNOWN, {})
        if text.startswith(_NO_CHANNEL):
            return LookupAnswer(TopicState.NO_CHANNEL, {}, redesigned=True)
        raise DiscoveryError(f"lookup answered {status} {text[:100]!r}")
    if not isinstance(data, dict):
        raise DiscoveryError("lookup answered no JSON object")
    leaders, bad_leaders = _read_partitions(data.get("partitions"))
    producers, bad_producers = _read_nodes(data.get("producers"))
    meta = _read_meta(data.get("meta"))
    redesigned = "partitions" in data
    known = bool(leaders or producers or meta.partition_num)
    return LookupAnswer(
        TopicState.FOUND if known else TopicState.UNKNOWN,
        leaders,
        producers,
        meta,
        redesigned,
        bad_leaders + bad_producers,
    )


def parse_peers(status: int, body: bytes) -> LookupPeers | None:
    """Read the answer to ``/listlookup``; None where the server is an original one.

    Raises :class:`DiscoveryError` if it is no answer (a redesigned lookup whose store is down).
    """
    status, data, text = _unwrap(status, body)
    if status == _NOT_FOUND:
        return None
    if status != _OK:
        raise DiscoveryError(f"listlookup answered {status} {text[:100]!r}")
    if not isinstance(data, dict):
        return LookupPeers(None, ())
    found = (_read_peer(entry) for entry in _list(data.get("lookupdnodes")))
    members = tuple(dict.fromkeys(peer for peer in found if peer))
    return LookupPeers(_read_peer(data.get("lookupdleader")), members)


def parse_nodes(status: int, body: bytes, topic: str) -> tuple[Node, ...]:
    """Read the answer to ``/nodes``: every nsqd that is not tombstoned for *topic*."""
    status, data, text = _unwrap(status, body)
    if status != _OK or not isinstance(data, dict):
        raise DiscoveryError(f"nodes answered {status} {text[:100]!r}")
    usable = []
    for entry in _list(data.get("producers")):
        node = _read_node(entry)
        if node and not _is_tombstoned(entry, topic):
            usable.append(node)
    return tuple(usable)


def _is_tombstoned(entry: dict[str, Any], topic: str) -> bool:
    topics, tombstones = _list(entry.get("topics")), _list(entry.get("tombstones"))
    return any(name == topic and dead for name, dead in zip(topics, tombstones, strict=False))


def _unwrap(status: int, body: bytes) -> tuple[int, Any, str]:
    """Status, data and error text, out of either envelope (protocol 7.1)."""
    try:
        document = json.loads(body) if body.strip() else None
    except (ValueError, RecursionError) as error:
        if status == _OK:
            raise DiscoveryError("the lookup's answer is not JSON") from error
        # Error bodies of the redesigned dialect are not escaped: still an answer.
        return status, None, body[:200].decode("utf-8", "replace")
    if not isinstance(document, dict):
        return status, document, ""
    if "status_code" in document and "data" in document:
        text = str(document.get("status_txt", ""))
        wrapped = document["status_code"]
        return (wrapped if isinstance(wrapped, int) else status), document["data"], text
    return status, document, str(document.get("message", ""))


def _read_partitions(value: Any) -> tuple[dict[int, Node], int]:
    leaders: dict[int, Node] = {}
    skipped = 0
    for key, entry in (value.items() if isinstance(value, dict) else ()):
        node = _read_node(entry)
        if node and key.isdecimal() and int(key[:5]) <= MAX_PARTITION:
            leaders[int(key)] = node
        else:
            skipped += 1
    return leaders, skipped


def _read_nodes(value: Any) -> tuple[tuple[Node, ...], int]:
    entries = _list(value)
    nodes = tuple(node for node in map(_read_node, entries) if node)
    return nodes, len(entries) - len(nodes)


def _read_node(entry: Any) -> Node | None:
    if not isinstance(entry, dict):
        return None
    host = entry.get("broadcast_address")
    port, http_port = entry.get("tcp_port"), entry.get("http_port")
    if not _is_host(host) or not _is_port(port):
        return None
    http = Address(host, http_port if _is_port(http_port) else 0)
    return Node(Address(host, port), http, str(entry.get("version", ""))[:100])


def _read_peer(entry: Any) -> Address | None:
    """A member of ``/listlookup``: ports are strings there (protocol 7.3)."""
    if not isinstance(entry, dict):
        return None
    host, port = entry.get("NodeIP"), entry.get("HttpPort")
    if not _is_host(host) or not isinstance(port, str) or not port.isdecimal():
        return None
    return Address(host, int(port[:6])) if _is_port(int(port[:6])) else None


def _read_meta(value: Any) -> TopicMeta:
    if not isinstance(value, dict):
        return TopicMeta()
    count = value.get("partition_num")
    return TopicMeta(
        partition_num=count if _is_count(count) else 0,
        ordered=value.get("ordered") is True,
        extended=value.get("extend_support") is True,
    )


def _is_host(value: Any) -> TypeGuard[str]:
    """A name or number to dial: printable, bounded, not multicast, not unspecified."""
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_HOST:
        return False
    if value in _UNUSABLE_HOSTS or value.lower().startswith("ff") and ":" in value:
        return False
    first = value.partition(".")[0]
    if first.isdecimal() and value.count(".") == 3 and 224 <= int(first[:4]) <= 239:  # noqa: PLR2004
        return False
    return all(c.isalnum() or c in ".-_:%" for c in value)


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= MAX_PARTITION + 1


def _is_port(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 < value <= _MAX_PORT


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

