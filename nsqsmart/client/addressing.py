"""From the address that a lookup names to the one to dial: ``address_map``, ``address_policy``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from nsqsmart.config import ClientConfig
from nsqsmart.names import Address
from nsqsmart.policy.lookup_answers import Node

log = logging.getLogger("nsqsmart")


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

    Only an Admin asks, so nobody else is to have entries for it; port 0 where it is not known.
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
