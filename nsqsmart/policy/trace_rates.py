"""Which share of a topic's messages is traced: what calls and documents may say.

Both say it alike (decisions#51): ``{"orders": 1.0, "*": 0.01}``, topic to share, ``*`` for
every topic that is not named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from nsqsmart.errors import ConfigError
from nsqsmart.names import is_valid_name

EVERY: Final = "*"
MAX_DOCUMENT: Final = 256 * 1024
"""Bytes of a document."""
MAX_TOPICS: Final = 10_000
"""Entries of a document."""

Rates = Mapping[str, float]

_SHOWN = 64


def check_rate(rate: object, what: str = "rate") -> float:
    """Return *rate*, a share from 0 to 1, or raise :class:`ConfigError` (TypeError: no number).

    *what* names it in the error. What is no number is not shown: in a file named by mistake it
    may be a secret.
    """
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise TypeError(f"{what} must be a number from 0 to 1, not {type(rate).__name__}")
    if not 0 <= rate <= 1:
        raise ConfigError(f"{what} must be from 0 to 1, not {repr(rate)[:_SHOWN]}")
    return float(rate)


def read_rates(document: object) -> Rates:
    """The rates in *document*, checked; raises :class:`ConfigError`."""
    if not isinstance(document, Mapping):
        raise ConfigError(
            f'it must be an object of topics and rates, as {{"orders": 1.0, "*": 0.01}}, '
            f"not {type(document).__name__}"
        )
    if len(document) > MAX_TOPICS:
        raise ConfigError(f"it has {len(document)} topics; {MAX_TOPICS} are permitted")
    rates: dict[str, float] = {}
    for topic, rate in document.items():
        if topic != EVERY and not (isinstance(topic, str) and is_valid_name(topic)):
            raise ConfigError(f"{repr(topic)[:_SHOWN]} is neither the name of a topic nor '*'")
        try:
            rates[topic] = check_rate(rate, f"the rate of {topic!r}")
        except TypeError as error:
            raise ConfigError(str(error)) from None
    return rates


def parse_rates(data: bytes) -> Rates:
    """The rates in a JSON document; raises :class:`ConfigError`."""
    if len(data) > MAX_DOCUMENT:
        raise ConfigError(f"it has more than {MAX_DOCUMENT} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"it is not JSON: {error}") from None
    return read_rates(document)


def rate_for(topic: str, said: Rates, document: Rates) -> float:
    """The share of *topic*: what was *said* in the program comes before the *document*.

    In each of them the topic's own rate comes before that of every topic.
    """
    for rates in (said, document):
        rate = rates.get(topic, rates.get(EVERY))
        if rate is not None:
            return rate
    return 0.0
