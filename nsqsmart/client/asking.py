"""What the lookups say, at the addresses to dial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nsqsmart.client.addressing import is_permitted, usable_node
from nsqsmart.client.measuring import Meter
from nsqsmart.config import ClientConfig, Endpoint
from nsqsmart.net.lookup import Access, LookupClient, LookupOptions
from nsqsmart.net.wires import Wires
from nsqsmart.policy.lookup_answers import LookupAnswer, Node


def make_lookup(
    endpoint: Endpoint,
    config: ClientConfig,
    wires: Wires | None = None,
    meter: Meter | None = None,
) -> LookupClient:
    """Who asks the lookups of *endpoint*, as the options say."""
    options = LookupOptions(
        config.lookupd_request_timeout,
        config.listlookup_interval,
        config.lookupd_failure_threshold,
    )
    return LookupClient(
        endpoint.addresses, options, wires, meter, lambda address: is_permitted(address, config)
    )


class Asking:
    """The lookups of *endpoint*; every method raises DiscoveryError if none answers."""

    def __init__(
        self, endpoint: Endpoint, config: ClientConfig, wires: Wires | None, meter: Meter | None
    ) -> None:
        self._config = config
        self._lookup = make_lookup(endpoint, config, wires, meter)

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
