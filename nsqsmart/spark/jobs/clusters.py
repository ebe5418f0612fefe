"""What the jobs ask of a cluster before they begin."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nsqsmart import Admin, AdminConfig
from nsqsmart.config import options_of
from nsqsmart.errors import ConfigError

_SHOWN = 5


def admin_of(address: str | None, client: Iterable[tuple[str, str]]) -> Admin:
    """An Admin; of the client's options it takes those that it knows."""
    known = options_of(AdminConfig)
    mine: dict[str, Any] = {name: value for name, value in client if name in known}
    return Admin(address, **mine)


def check_topics(admin: Admin, topics: Sequence[str]) -> None:
    """Raise ConfigError if no lookup knows one of them, DiscoveryError if none answers."""
    known = admin.topics()
    for topic in topics:
        if topic not in known:
            near = difflib.get_close_matches(topic, known, n=1)
            hint = f": did you mean {near[0]}?" if near else f"; known are {_few(known)}"
            raise ConfigError(f"no lookup of {admin} knows topic {topic!r}{hint}")


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN]) or "none"
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def source_options(client: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """The client's options as the data source takes them."""
    return {f"nsq.{name}": value for name, value in client}
