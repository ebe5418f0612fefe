"""Where a client goes: the address, taken apart."""

from __future__ import annotations

import dataclasses
import re
from typing import Final, NamedTuple
from urllib.parse import unquote

from nsqsmart.errors import ConfigError
from nsqsmart.names import Address


class _Scheme(NamedTuple):
    default_port: int
    tls: bool = False


EMBEDDED: Final = "nsq+embedded"
SCHEMES: Final = {
    "nsq": _Scheme(4150),
    "nsqs": _Scheme(4150, tls=True),
    "nsq+lookupd": _Scheme(4161),
    "nsqs+lookupd": _Scheme(4161, tls=True),
    EMBEDDED: _Scheme(0),
}
EXAMPLES: Final = (
    "nsq://HOST:4150 for an nsqd, nsq+lookupd://HOST:4161 for its nsqlookupd, "
    "or nsq+embedded://demo, which needs no server"
)
_URL = re.compile(r"([^:/?#\[\]@]+)://([^/?#]*)/?(?:\?(.*))?", re.DOTALL)
_NO_HOST = re.compile(r"[^\w.\-:,%\[\]]")
_CLUSTER = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that was taken apart.

    Attributes:
        scheme: one of SCHEMES.
        addresses: of nsqd or nsqlookupd, each once; empty for an embedded cluster.
        tls: the scheme asks for TLS to nsqd (so may the option ``tls_v1``: ask the config).
        name: the name of the embedded cluster, or ``""``.
        query: name and value of every pair after the ``?``, not to be printed.
    """

    scheme: str
    addresses: tuple[Address, ...] = ()
    tls: bool = False
    name: str = ""
    query: tuple[tuple[str, str], ...] = dataclasses.field(default=(), repr=False)

    @property
    def discovers(self) -> bool:
        """Whether the addresses are those of nsqlookupd."""
        return self.scheme.endswith("+lookupd")

    @property
    def embedded(self) -> bool:
        """Whether it names a cluster in this process."""
        return self.scheme == EMBEDDED

    def __str__(self) -> str:
        return f"{self.scheme}://{self.name or ','.join(map(str, self.addresses))}"

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """Take *url* apart: ``scheme://host:port,...?option=value&...``.

        In the query ``%XX`` is read, and ``+`` is a plus. Raises :class:`ConfigError`, which
        prints nothing that may be a secret; TypeError for what is no str.
        """
        if not isinstance(url, str):
            raise TypeError(f"an address is a str, not {type(url).__name__}")
        match = _URL.fullmatch(url.strip())
        scheme = match[1].lower() if match else ""
        if not match or scheme not in SCHEMES:
            raise ConfigError(f"an address begins with one of {_schemes()}: write {EXAMPLES}")
        query = _parse_query(match[3] or "")
        if scheme == EMBEDDED:
            return cls(scheme, name=_parse_name(match[2]), query=query)
        return cls(
            scheme,
            addresses=_parse_hosts(scheme, match[2]),
            tls=SCHEMES[scheme].tls,
            query=query,
        )


def _schemes() -> str:
    return ", ".join(f"{scheme}://" for scheme in SCHEMES)


def _parse_name(name: str) -> str:
    if not _CLUSTER.fullmatch(name):
        raise ConfigError(
            f"{EMBEDDED}:// needs a name of letters, digits, '.', '_' and '-', as {EMBEDDED}://demo"
        )
    return name


def _parse_hosts(scheme: str, hosts: str) -> tuple[Address, ...]:
    # What is no host may be a secret on the wrong side of the '?': say where it went wrong only.
    if wrong := _NO_HOST.search(hosts):
        raise ConfigError(
            f"{scheme}:// is followed by hosts and ports, which hold no {wrong[0]!r}; "
            "options follow a '?', a secret is ?auth_secret=..."
        )
    port = SCHEMES[scheme].default_port
    parts = hosts.split(",")
    if "" in parts:
        raise ConfigError(f"{scheme}://{hosts} lacks a host: write {scheme}://HOST:{port},...")
    return tuple(dict.fromkeys(Address.parse(part, port) for part in parts))


def _parse_query(query: str) -> tuple[tuple[str, str], ...]:
    if "#" in query:
        raise ConfigError("the query of an address holds no '#': write it as %23")
    pairs = []
    for part in query.split("&") if query else ():
        name, equals, value = part.partition("=")
        if not name or not equals:
            raise ConfigError(
                "the query of an address is name=value&name=value: write a '&' in a value as %26"
            )
        pairs.append((unquote(name), unquote(value)))
    return tuple(pairs)
