"""Which servers a project's address leads to, and what of its declared use they cannot do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from nsqsmart import Admin, AdminConfig
from nsqsmart.config import read_options
from nsqsmart.contrib.shared.declaring import Declared
from nsqsmart.errors import ConfigError
from nsqsmart.names import Dialect

DIALECTS: Final = tuple(map(str, Dialect))

_FOR_KEYS: Final = ("sharding", "serialize", "retry_unanswered", "uncertain_fence")
"""Options that speak only of messages with a key."""
_ORIGINAL_LACKS: Final = {
    "ordered": "has no ordered topics, and refuses it",
    "start_at": "has no offsets, and refuses it",
    "ext_filter": "has no headers to filter by: every message comes",
    "desired_tag": "has no tags: every message comes",
    "positions": "has no offsets to tell",
}


class Use(NamedTuple):
    """What a project has declared of one alias.

    ``dialect`` is what its settings say of the servers, None for nothing; ``options`` are those of
    its clients, from ``source``.
    """

    dialect: str | None
    options: Mapping[str, Any]
    source: str
    handlers: Collection[Declared] = ()

    @property
    def best_effort(self) -> bool:
        """Whether a key may be sent without order."""
        return self.options.get("ordering") == "best-effort"


def check_dialect(dialect: object, source: str) -> str | None:
    """*dialect*, of the settings at *source*; raises ConfigError."""
    if dialect is not None and dialect not in DIALECTS:
        raise ConfigError(f"{source} {dialect!r} is none of {', '.join(DIALECTS)}")
    return None if dialect is None else str(dialect)


def find_dialects(url: str | None, use: Use, timeout: float) -> dict[str, Dialect]:
    """The dialect of every nsqd, as far as it says one; by its "host:port".

    Asks lookups, or the nsqds of the address, for *timeout* seconds. Raises ConfigError and
    DiscoveryError.
    """
    told = read_options(AdminConfig, use.options, use.source, shared=True)
    admin = Admin(url, **{**told, "admin_timeout": timeout})
    return {node.nsqd: node.dialect for node in admin.nodes() if node.dialect is not None}


def describe_dialects(dialects: Mapping[str, Dialect], use: Use) -> list[str]:
    """A line for each dialect: what it is, and what it refuses of what a publish may be given."""
    return [_describe(dialect, use) for dialect in sorted(set(dialects.values()))]


def _describe(dialect: Dialect, use: Use) -> str:
    if dialect is Dialect.REDESIGNED:
        return "redesigned NSQ: delay= is refused, and a topic is made before its first message"
    if use.best_effort:
        return (
            "original NSQ: key= is sent without order (ordering=best-effort); partition=, "
            "headers=, tag= and trace= are refused"
        )
    return (
        "original NSQ: key=, partition=, headers=, tag= and trace= are refused; "
        'with ordering="best-effort" a key= is sent without order'
    )


def find_misfits(dialects: Mapping[str, Dialect], use: Use) -> list[str]:
    """The declared options that these servers do not support, as sentences."""
    wrong = []
    for nsqd, dialect in sorted(dialects.items()):
        if use.dialect not in (None, dialect):
            wrong.append(f"the settings say {use.dialect}, and {nsqd} is {dialect}")
            break
    if Dialect.ORIGINAL in dialects.values():
        wrong += _original_cannot(use)
    return wrong


def _original_cannot(use: Use) -> Iterator[str]:
    named = [name for name in _FOR_KEYS if name in use.options]
    if named and not use.best_effort:
        yield f"{use.source} has {_join(named)}, for messages with key=: original NSQ refuses them"
    if use.options.get("trace"):
        yield f"{use.source} has trace: original NSQ traces nothing"
    for each in use.handlers:
        options = {**use.options, **each.options}
        for name, why in _ORIGINAL_LACKS.items():
            if options.get(name) not in (None, False, "auto"):
                yield f"handler {each.name} has {name}={options[name]!r}: original NSQ {why}"


def _join(names: Iterable[str]) -> str:
    return " and ".join(names)
