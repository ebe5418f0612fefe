"""What nsqlookupd answers, in both dialects and both envelopes (protocol#lookup).

Everything here comes from a peer: whatever has the wrong shape is skipped and counted, never
trusted, and only a document that is no answer at all raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, ip_address
from typing import Any, NamedTuple, TypeGuard

from nsqsmart.errors import DiscoveryError
from nsqsmart.names import MAX_PARTITION, Address, Dialect
from nsqsmart.policy.answers.documents import list_of, object_of, text_of, unwrap

_OK = 200
_NOT_FOUND = 404
_MAX_PORT = 65535
_MAX_HOST = 253
_MAX_VERSION = 100
# A cluster is far smaller; what a peer may make us dial is bounded (decisions#24).
_MAX_NODES = 1024
_MAX_PEERS = 16
_UNKNOWN_TOPIC = frozenset({"TOPIC_NOT_FOUND", "Key not found"})
_NO_SUCH_PATH = "NOT_FOUND"
_NO_CHANNEL = "Topic has no channel"
_BROADCAST = IPv4Address("255.255.255.255")
# ipaddress accepts any text after the % of an IPv6 scope.
_LITERAL = re.compile(r"[0-9a-fA-F:.]+(?:%[a-zA-Z0-9_.-]+)?")
_LABEL = r"[a-zA-Z0-9_][a-zA-Z0-9_-]{0,62}"
_HOST_NAME = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}\.?")
# Other spellings of an IPv4 address that libc takes: 0, 0xe0.1, 3758096385.
_PART = r"(?:0[xX][0-9a-fA-F]*|0[0-9]*|[1-9][0-9]{0,9})"
_SPELLED_NUMBER = re.compile(rf"(?:{_PART}\.){{0,3}}{_PART}\.?")


class Node(NamedTuple):
    """An nsqd as a lookup describes it."""

    address: Address
    http: Address
    """Port 0 where the lookup names none."""
    version: str = ""

    @property
    def dialect(self) -> Dialect:
        """Told from the version: redesigned nsqds say ``HA`` in it."""
        return Dialect.REDESIGNED if "HA" in self.version else Dialect.ORIGINAL


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
    channels_by_lookup: bool = False
    """Only the leading lookup makes and deletes channels: ``disable_channel_auto_create``."""
    replicas: int = 0


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
    status, data, text = unwrap(status, body)
    if status != _OK:
        if status == _NOT_FOUND and text == _NO_SUCH_PATH:
            raise DiscoveryError(
                "it has no /lookup, so it is no nsqlookupd: is it the HTTP port of an nsqd? "
                "nsqlookupd's is usually 4161"
            )
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
    status, data, text = unwrap(status, body)
    if status == _NOT_FOUND:
        return None
    if status != _OK:
        raise DiscoveryError(f"listlookup answered {status} {text[:100]!r}")
    if not isinstance(data, dict):
        return LookupPeers(None, ())
    found = (_read_peer(entry) for entry in list_of(data.get("lookupdnodes")))
    members = tuple(dict.fromkeys(peer for peer in found if peer))
    return LookupPeers(_read_peer(data.get("lookupdleader")), members[:_MAX_PEERS])


def parse_nodes(status: int, body: bytes, topic: str) -> tuple[Node, ...]:
    """Read the answer to ``/nodes``: every nsqd that is not tombstoned for *topic*."""
    data = object_of(status, body, "nodes")
    usable = []
    for entry in list_of(data.get("producers")):
        node = read_node(entry)
        if node and not _is_tombstoned(entry, topic):
            usable.append(node)
    return tuple(usable[:_MAX_NODES])


def _is_tombstoned(entry: dict[str, Any], topic: str) -> bool:
    topics, tombstones = list_of(entry.get("topics")), list_of(entry.get("tombstones"))
    return any(name == topic and dead for name, dead in zip(topics, tombstones, strict=False))


def _read_partitions(value: Any) -> tuple[dict[int, Node], int]:
    leaders: dict[int, Node] = {}
    skipped = 0
    for key, entry in value.items() if isinstance(value, dict) else ():
        node = read_node(entry)
        number = _number(key)
        if node and number is not None and number <= MAX_PARTITION:
            leaders[number] = node
        else:
            skipped += 1
    return leaders, skipped


def _read_nodes(value: Any) -> tuple[tuple[Node, ...], int]:
    entries = list_of(value)
    nodes = tuple(node for node in map(read_node, entries) if node)[:_MAX_NODES]
    return nodes, len(entries) - len(nodes)


def read_node(entry: Any) -> Node | None:
    """An nsqd as any lookup answer describes it; None for what cannot be used."""
    if not isinstance(entry, dict):
        return None
    host = entry.get("broadcast_address")
    port, http_port = entry.get("tcp_port"), entry.get("http_port")
    if not _is_host(host) or not _is_port(port):
        return None
    http = Address(host, http_port if _is_port(http_port) else 0)
    version = text_of(entry.get("version"))[:_MAX_VERSION]
    return Node(Address(host, port), http, version if version.isprintable() else "")


def _read_peer(entry: Any) -> Address | None:
    """A member of ``/listlookup``: ports are strings there (protocol#listlookup)."""
    if not isinstance(entry, dict):
        return None
    host, port = entry.get("NodeIP"), _number(entry.get("HttpPort"))
    return Address(host, port) if _is_host(host) and _is_port(port) else None


def _read_meta(value: Any) -> TopicMeta:
    if not isinstance(value, dict):
        return TopicMeta()
    count, replicas = value.get("partition_num"), value.get("replica")
    return TopicMeta(
        partition_num=count if _is_count(count) else 0,
        ordered=value.get("ordered") is True,
        extended=value.get("extend_support") is True,
        channels_by_lookup=value.get("disable_channel_auto_create") is True,
        replicas=replicas if _is_count(replicas) else 0,
    )


def _is_host(value: Any) -> TypeGuard[str]:
    """A name or number to dial: bounded, ASCII, not unspecified, multicast or broadcast.

    Whatever the spelling: ``0``, ``::ffff:224.0.0.1`` and ``0xe0.1`` are refused as well.
    """
    if not isinstance(value, str) or len(value) > _MAX_HOST:
        return False
    try:
        address = ip_address(value)
    except ValueError:
        return bool(_HOST_NAME.fullmatch(value)) and not _SPELLED_NUMBER.fullmatch(value)
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_unspecified or address.is_multicast or address == _BROADCAST:
        return False
    return _LITERAL.fullmatch(value) is not None


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= MAX_PARTITION + 1


def _is_port(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 < value <= _MAX_PORT


def _number(value: Any) -> int | None:
    """A number that comes as text, of at most five digits."""
    digits = isinstance(value, str) and len(value) <= len(str(_MAX_PORT)) and value.isascii()
    return int(value) if digits and value.isdecimal() else None
