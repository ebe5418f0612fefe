"""What an auth server allows, and how it is asked (protocol#auth)."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any
from urllib.parse import urlencode, urlsplit

from nsqsmart.embedded.serving.fetching import get_json

_TIMEOUT = 5.0
_PORT = 80
_SUBSCRIBE, _PUBLISH = "subscribe", "publish"


class AuthFailed(Exception):
    """No auth server gave an answer that can be used; clients are not told why."""


@dataclass(frozen=True, slots=True)
class Permission:
    """One entry of an answer: patterns that are searched for, as Go's MatchString does."""

    topic: re.Pattern[str]
    channels: tuple[re.Pattern[str], ...]
    permissions: frozenset[str]

    def allows(self, topic: str, channel: str) -> bool:
        """Whether this entry lets *channel* be consumed, or with "" the topic be published to."""
        if (_SUBSCRIBE if channel else _PUBLISH) not in self.permissions:
            return False
        if not self.topic.search(topic):
            return False
        return any(pattern.search(channel) for pattern in self.channels)


@dataclass(frozen=True, slots=True)
class Authority:
    """What a connection may do, until ``expires_at`` (monotonic seconds)."""

    secret: str
    identity: str
    identity_url: str
    grants: tuple[Permission, ...]
    expires_at: float

    def allows(self, topic: str, channel: str) -> bool:
        """Whether any entry allows it."""
        return any(grant.allows(topic, channel) for grant in self.grants)


def ask(addresses: Sequence[str], about: Mapping[str, str], secret: str) -> Authority:
    """What the first auth server that answers says of a client; raises :class:`AuthFailed`."""
    query = urlencode({**about, "secret": secret})
    for address in addresses:
        where, path = endpoint(address)
        try:
            return _understand(get_json(where, f"{path}?{query}", _TIMEOUT), secret)
        except (OSError, ValueError, TypeError, AttributeError, re.error):
            continue
    raise AuthFailed


def endpoint(address: str) -> tuple[tuple[str, int], str]:
    """(host, port) and path of ``host:port`` or ``http://host:port/path``; raises ValueError."""
    url = urlsplit(address if "://" in address else f"http://{address}/auth")
    if url.scheme != "http" or not url.hostname:
        raise ValueError(f"auth server {address!r} is neither HOST:PORT nor http://HOST:PORT/PATH")
    return (url.hostname, url.port or _PORT), url.path or "/"


def auth_server(text: str) -> str:
    """The value of ``--auth-http-address``, once it is known to make sense; raises ValueError."""
    endpoint(text)
    return text


def _understand(document: dict[str, Any], secret: str) -> Authority:
    ttl = document.get("ttl")
    if type(ttl) is not int or ttl <= 0:
        raise ValueError(f"invalid TTL {ttl!r} (must be >0)")
    grants = tuple(map(_grant, document.get("authorizations") or ()))
    unknown = set(chain(*(grant.permissions for grant in grants))) - {_SUBSCRIBE, _PUBLISH}
    if unknown:
        raise ValueError(f"unknown permissions {sorted(unknown)}")
    return Authority(
        secret,
        document.get("identity") or "",
        document.get("identity_url") or "",
        grants,
        time.monotonic() + ttl,
    )


def _grant(entry: dict[str, Any]) -> Permission:
    channels: Sequence[str] = entry.get("channels") or ()
    return Permission(
        re.compile(entry.get("topic") or ""),
        tuple(map(re.compile, channels)),
        frozenset(entry.get("permissions") or ()),
    )
