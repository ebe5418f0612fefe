"""Which servers a project's address leads to, and what of its declared use they cannot do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from nsqsmart import Admin, AdminConfig
from nsqsmart.config import read_options
from nsqsmart.contrib.shared.declaring import Declared
from nsqsmart.contrib.shared.settings import Settings
from nsqsmart.names import Dialect

_FOR_KEYS: Final = ("sharding", "serialize", "retry_unanswered", "uncertain_fence")
"""Options that speak only of messages with a key."""
_ORIGINAL_LACKS: Final = {
    "ordered": "has no ordered topics, and refuses it",
    "start_at": "has no offsets, and refuses it",
    "ext_filter": "has no headers to filter by: every message comes",
    "desired_tag": "has no tags: every message comes",
    "positions": "has no offsets to tell",
}


def find_dialects(settings: Settings, timeout: float) -> dict[str, Dialect]:
    """The dialect of every nsqd, as far as it says one; by its "host:port".

    Asks lookups, or the nsqds of the address, for *timeout* seconds. Raises ConfigError and
    DiscoveryError.
    """
    told = read_options(AdminConfig, settings.options, settings.source, shared=True)
    admin = Admin(settings.url, **{**told, "admin_timeout": timeout})
    return {node.nsqd: node.dialect for node in admin.nodes() if node.dialect is not None}


def describe_dialects(dialects: Mapping[str, Dialect], settings: Settings) -> list[str]:
    """A line for each dialect: what it is, and what it refuses of what a publish may be given."""
    lines = {
        Dialect.REDESIGNED: "redesigned NSQ: delay= is refused, and a topic is made before its "
        "first message",
        Dialect.ORIGINAL: "original NSQ: key=, partition=, headers=, tag= and trace= are refused; "
        'with ordering="best-effort" a key= is sent without order',
    }
    if settings.best_effort:
        lines[Dialect.ORIGINAL] = (
            "original NSQ: key= is sent without order (ordering=best-effort); partition=, "
            "headers=, tag= and trace= are refused"
        )
    return [lines[dialect] for dialect in sorted(set(dialects.values()))]


def find_misfits(
    dialects: Mapping[str, Dialect], settings: Settings, handlers: Iterable[Declared]
) -> list[str]:
    """What *settings* and *handlers* declare that these servers do not support, as sentences."""
    wrong = []
    for nsqd, dialect in sorted(dialects.items()):
        if settings.dialect not in (None, dialect):
            wrong.append(f"the settings say {settings.dialect}, and {nsqd} is {dialect}")
            break
    if Dialect.ORIGINAL in dialects.values():
        wrong += _original_cannot(settings, handlers)
    return wrong


def _original_cannot(settings: Settings, handlers: Iterable[Declared]) -> Iterator[str]:
    named = [name for name in _FOR_KEYS if name in settings.options]
    if named and not settings.best_effort:
        keyed = " and ".join(named)
        yield f"{settings.source} has {keyed}, for messages with key=: original NSQ refuses them"
    if settings.options.get("trace"):
        yield f"{settings.source} has trace: original NSQ traces nothing"
    for each in handlers:
        options = {**settings.options, **each.options}
        for name, why in _ORIGINAL_LACKS.items():
            if options.get(name) not in (None, False, "auto"):
                yield f"handler {each.name} has {name}={options[name]!r}: original NSQ {why}"
