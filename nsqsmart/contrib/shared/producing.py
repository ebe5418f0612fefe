"""A Producer as the settings of a project say, which serves requests that do not wait long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsqsmart import Producer
from nsqsmart.config import Endpoint, ProducerConfig, read_options, resolve
from nsqsmart.errors import ConfigError

PUBLISH_TIMEOUT = 5.0
"""Seconds; a request that waited for 60 would have been given up by its browser."""


def make_producer(
    url: str | None, options: Mapping[str, Any], source: str, config: ProducerConfig
) -> Producer:
    """One with the *config* that :func:`read_target` gave for the others.

    The *options* go with it as keywords: a config alone would lose to the query of the URL.
    """
    return Producer(
        url, config=config, **read_options(ProducerConfig, options, source, shared=True)
    )


def read_target(
    url: str | None, options: Mapping[str, Any], source: str
) -> tuple[Endpoint, ProducerConfig]:
    """Where a project's producer goes, and what it is told.

    *source* names the settings, in errors. Raises ConfigError.
    """
    if not isinstance(options, Mapping):
        raise ConfigError(f"the options from {source} must be a dict, not {options!r}")
    if url is not None and not isinstance(url, str):
        raise ConfigError(f"the URL beside {source} must be a str, not {type(url).__name__}")
    own = read_options(ProducerConfig, options, source, shared=True)
    return resolve(ProducerConfig, url, own, defaults={"publish_timeout": PUBLISH_TIMEOUT})
