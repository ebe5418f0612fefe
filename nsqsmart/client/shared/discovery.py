"""Where the lookups of an address are, what they say, and at which addresses to dial."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace

from nsqsmart.client.shared.metrics import Meter
from nsqsmart.config import ClientConfig, Endpoint, embedded_config
from nsqsmart.names import Address
from nsqsmart.net.cancel_scope import CancelScope
from nsqsmart.net.http.lookup import Access, LookupClient, LookupOptions
from nsqsmart.policy.answers.lookup import LookupAnswer, Node

log = logging.getLogger("nsqsmart")


def prepare_endpoint(endpoint: Endpoint) -> None:
    """Import what lookups need; a client without lookups does not pay for it.

    When a client is made, not when one thread first looks up: a process that forks just then would
    hand its child the lock of an import that no thread there will ever end.
    """
    if endpoint.discovers or endpoint.embedded:
        importlib.import_module("nsqsmart.net.http.session")


def open_endpoint(endpoint: Endpoint) -> Endpoint:
    """*endpoint* itself, or where the embedded cluster that it names listens."""
    if not endpoint.embedded:
        return endpoint
    # By name: the embedded cluster is a room, and no floor imports one.
    embedded = importlib.import_module("nsqsmart.embedded")
    cluster = embedded.get(endpoint.name, **asdict(embedded_config(endpoint)))
    return Endpoint.parse(cluster.url)


def usable_node(node: Node, config: ClientConfig) -> Node | None:
    """The node at the address to dial, or None if the policy refuses it."""
    address = _translate(node.address, config.address_map)
    return node._replace(address=address) if is_permitted(address, config) else None


def is_permitted(address: Address, config: ClientConfig) -> bool:
    """What ``address_policy`` says of *address*, which a lookup named; a refusal is logged."""
    policy = config.address_policy
    if policy is None or policy(address):
        return True
    log.warning("address_policy refuses %s", address)
    return False


def http_address(node: Node, config: ClientConfig) -> Address:
    """Where to ask the node over HTTP: ``address_map`` with the broadcast host and HTTP port.

    Only an Admin asks, so other clients need no entries for it; port 0 where it is not known.
    """
    return _translate(node.http, config.address_map) if node.http.port else node.http


def _translate(
    address: Address, table: Mapping[str, str] | Callable[[Address], Address | str] | None
) -> Address:
    if table is None:
        return address
    found = (
        table(address) if callable(table) else table.get(str(address)) or table.get(address.host)
    )
    if found is None:
        return address
    return Address.parse(found, address.port) if isinstance(found, str) else Address(*found)


def make_lookup(
    endpoint: Endpoint,
    config: ClientConfig,
    scope: CancelScope | None = None,
    meter: Meter | None = None,
) -> LookupClient:
    """Make the object that asks the lookups of *endpoint*, as the options say."""
    options = LookupOptions(
        config.lookupd_request_timeout,
        config.listlookup_interval,
        config.lookupd_failure_threshold,
    )
    return LookupClient(
        endpoint.addresses, options, scope, meter, lambda address: is_permitted(address, config)
    )


class Discovery:
    """The lookups of *endpoint*; every method raises DiscoveryError if none answers."""

    def __init__(
        self,
        endpoint: Endpoint,
        config: ClientConfig,
        scope: CancelScope | None,
        meter: Meter | None,
    ) -> None:
        self._config = config
        self._lookup = make_lookup(endpoint, config, scope, meter)

    def topic(self, topic: str, access: Access, deadline: float) -> list[LookupAnswer]:
        """What each one says of *topic*."""
        return [
            replace(
                answer,
                leaders=self._map_leaders(answer.leaders),
                producers=tuple(filter(None, map(self._map, answer.producers))),
            )
            for answer in self._lookup.ask(topic, access, deadline).answers
        ]

    @property
    def place(self) -> tuple[str, bool]:
        """Where they are, and whether they are those of an original cluster."""
        return ", ".join(map(str, self._lookup.addresses)), self._lookup.original

    def nodes_for_new_topic(self, topic: str, deadline: float) -> tuple[Node, ...]:
        """Where an original cluster takes the first publish of a topic; () on any other."""
        if not self._lookup.original:
            return ()
        found = self._lookup.nodes_for_new_topic(topic, deadline)
        return tuple(filter(None, map(self._map, found)))

    def nodes(self, deadline: float) -> tuple[Node, ...]:
        """Every nsqd they know."""
        return tuple(filter(None, map(self._map, self._lookup.nodes(deadline))))

    def _map_leaders(self, leaders: Mapping[int, Node]) -> dict[int, Node]:
        mapped = ((number, self._map(node)) for number, node in leaders.items())
        return {number: node for number, node in mapped if node}

    def _map(self, node: Node) -> Node | None:
        return usable_node(node, self._config)
