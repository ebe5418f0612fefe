"""The nsqds of an ``nsq://`` address, over HTTP: no lookup lists them, and none is told."""

from __future__ import annotations

from nsqsmart.config import AdminConfig, Endpoint
from nsqsmart.errors import ConfigError, DiscoveryError
from nsqsmart.names import Address, Dialect
from nsqsmart.net.admin_http import AdminHttp
from nsqsmart.policy.lookup_answers import Node
from nsqsmart.policy.node_answers import Listed, parse_info
from nsqsmart.policy.stats_answers import parse_stats

_HTTP_PORT = 4151


def read_http_addresses(endpoint: Endpoint, config: AdminConfig) -> tuple[Address, ...]:
    """What ``nsqd_http_addresses`` says, in the order of the nsqds of *endpoint*; () for nothing.

    Raises ConfigError where it cannot be used.
    """
    if config.nsqd_http_addresses is None:
        return ()
    if endpoint.discovers or endpoint.embedded:
        raise ConfigError(
            "nsqd_http_addresses is for nsq:// addresses: lookups tell those of their nsqds"
        )
    parts = config.nsqd_http_addresses.split(",")
    found = tuple(Address.parse(part.strip(), _HTTP_PORT) for part in parts)
    if len(found) != len(endpoint.addresses):
        raise ConfigError(
            f"nsqd_http_addresses names {len(found)} and {endpoint} has "
            f"{len(endpoint.addresses)}: give one for each nsqd, in their order"
        )
    return found


class LoneNsqds:
    """Asks nsqds themselves what a lookup would tell of them.

    Args:
        places: TCP and HTTP address of each.
    """

    def __init__(self, places: list[tuple[Address, Address]]) -> None:
        self._places = places

    def nodes(self, http: AdminHttp) -> list[Listed]:
        """All of them; one that does not answer has no version and no topics."""
        found = []
        for left, (address, server) in zip(
            range(len(self._places) - 1, -1, -1), self._places, strict=True
        ):
            try:
                found.append(_ask(http, address, server, left))
            except DiscoveryError:
                found.append(Listed(Node(address, server), "", frozenset()))
        return found

    def dialects(self, http: AdminHttp) -> set[Dialect]:
        """Of those that answer; raises DiscoveryError if none does."""
        found = {each.node.dialect for each in self.nodes(http) if each.node.version}
        if not found:
            servers = ", ".join(str(server) for _, server in self._places)
            raise DiscoveryError(f"no nsqd answers over HTTP (asked: {servers})")
        return found


def _ask(http: AdminHttp, address: Address, server: Address, others: int) -> Listed:
    version, hostname = parse_info(*http.get(server, "/info", (), others))
    entries = parse_stats(*http.get(server, "/stats", (("format", "json"),), others), str(address))
    return Listed(
        Node(address, server, version), hostname, frozenset(each.topic for each in entries)
    )
