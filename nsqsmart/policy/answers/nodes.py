"""What nsqlookupd answers to ``/nodes`` and ``/topics``: the whole cluster.

See protocol#lookup-admin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from nsqsmart.errors import DiscoveryError
from nsqsmart.names import Address, Dialect, is_valid_name
from nsqsmart.policy.answers.documents import dicts_of, list_of, object_of, shown, text_of
from nsqsmart.policy.answers.lookup import Node, read_node

_MAX_HOSTNAME = 253
_MAX_VERSION = 100
# A cluster is far smaller; what a peer may make us ask is bounded (decisions#24).
_MAX_NODES = 1024


class Listed(NamedTuple):
    """An nsqd as ``/nodes`` lists it."""

    node: Node
    hostname: str
    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """An nsqd of the cluster.

    Attributes:
        nsqd: ``"host:port"`` for TCP, where clients connect to (after ``address_map``).
        http: ``"host:port"`` for HTTP; ``""`` where it is not known.
        hostname: what the machine calls itself, or ``""``.
        version: of the program, or ``""``.
        dialect: told from the version; None where there is none.
        topics: what it has, sorted; of a redesigned nsqd what it leads and takes messages for.
    """

    nsqd: str
    http: str = ""
    hostname: str = ""
    version: str = ""
    dialect: Dialect | None = None
    topics: tuple[str, ...] = ()


def parse_listing(status: int, body: bytes) -> list[Listed]:
    """Read the answer to ``/nodes``; raises :class:`DiscoveryError` if it is none."""
    data = object_of(status, body, "nodes")
    found = []
    for entry in dicts_of(data.get("producers")):
        node = read_node(entry)
        if node:
            hostname = text_of(entry.get("hostname"))[:_MAX_HOSTNAME]
            topics = frozenset(_names(entry.get("topics")))
            found.append(Listed(node, hostname if hostname.isprintable() else "", topics))
    return found[:_MAX_NODES]


def parse_topics(status: int, body: bytes) -> list[str]:
    """Read the answer to ``/topics``; raises :class:`DiscoveryError` if it is none."""
    return _names(object_of(status, body, "topics").get("topics"))


def parse_info(status: int, body: bytes) -> tuple[str, str]:
    """Version and host name of an nsqd, as ``/info`` has them; raises :class:`DiscoveryError`."""
    data = object_of(status, body, "info")
    version, hostname = text_of(data.get("version")), text_of(data.get("hostname"))
    if not version:
        raise DiscoveryError("info answered without a version: it is not an nsqd")
    return shown(version)[:_MAX_VERSION], shown(hostname)[:_MAX_HOSTNAME]


def unite(listings: Iterable[Iterable[Listed]]) -> list[Listed]:
    """Every nsqd once, by TCP address, with the topics that any of the lookups lists it with."""
    united: dict[Address, Listed] = {}
    for listed in (each for listing in listings for each in listing):
        known = united.get(listed.node.address)
        topics = listed.topics | known.topics if known else listed.topics
        united[listed.node.address] = (known or listed)._replace(topics=topics)
    return [united[address] for address in sorted(united)]


def describe(listed: Listed) -> NodeInfo:
    """*listed* for people."""
    node = listed.node
    return NodeInfo(
        nsqd=str(node.address),
        http=str(node.http) if node.http.port else "",
        hostname=listed.hostname,
        version=node.version,
        dialect=node.dialect if node.version else None,
        topics=tuple(sorted(listed.topics)),
    )


def _names(value: Any) -> list[str]:
    return [each for each in list_of(value) if isinstance(each, str) and is_valid_name(each)]
