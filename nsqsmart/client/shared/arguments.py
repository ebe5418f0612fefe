"""The arguments of calls, checked before anything is sent."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypedDict

from nsqsmart.errors import ConfigError
from nsqsmart.names import check_partition
from nsqsmart.policy.routing import Key, check_key
from nsqsmart.wire.ext import MAX_HEADER, RESERVED, encode_header

_MAX_TRACE_ID = (1 << 64) - 1
_MAX_DELAY = 30 * 86400.0


class PublishArguments(TypedDict, total=False):
    """The arguments of :meth:`nsqsmart.Producer.publish` that are given by name."""

    key: Key | None
    partition: int | None
    trace: bool | None
    trace_id: int | None
    headers: Mapping[str, Any] | None
    tag: str | None
    delay: float | None
    timeout: float | None


class Publication(NamedTuple):
    """The arguments of one call, checked.

    ``batch`` makes it one MPUB, of however many bodies. ``trace_ids`` has one for each body, or is
    empty; ``must_trace`` tells that the caller asked for it, not the configuration. ``delay`` is in
    milliseconds.
    """

    topic: str
    bodies: tuple[bytes, ...]
    key: Key | None = None
    partition: int | None = None
    trace_ids: tuple[int, ...] = ()
    must_trace: bool = False
    headers: Mapping[str, Any] | None = None
    tag: str | None = None
    delay: int | None = None
    batch: bool = False

    @property
    def keyed(self) -> bool:
        """Whether it belongs to one partition and to no other."""
        return self.key is not None or self.partition is not None


def check_body(body: object, name: str = "body") -> bytes:
    """*body* as bytes; raises TypeError, ConfigError for an empty one."""
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError(
            f"{name} must be bytes, not {type(body).__name__}; "
            "encode text with .encode(), objects with json.dumps(...).encode()"
        )
    if not len(body):
        raise ConfigError(f"{name} is empty: nsqd refuses empty messages")
    return bytes(body)


def check_bodies(bodies: object) -> tuple[bytes, ...]:
    """Several bodies, at least one."""
    if isinstance(bodies, list | tuple) and set(map(type, bodies)) == {bytes} and all(bodies):
        return tuple(bodies)
    if isinstance(bodies, str | bytes | bytearray | memoryview | Mapping):
        raise TypeError(f"bodies must be a list of bytes, not {type(bodies).__name__}")
    if not isinstance(bodies, Iterable):
        raise TypeError(f"bodies must be a list of bytes, not {type(bodies).__name__}")
    checked = tuple(
        body if type(body) is bytes and body else check_body(body, f"bodies[{number}]")
        for number, body in enumerate(bodies)
    )
    if not checked:
        raise ConfigError("bodies is empty: there is nothing to publish")
    return checked


def encode_json(value: object) -> bytes:
    """*value* as compact JSON in UTF-8; raises TypeError or ConfigError for what JSON lacks."""
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the value cannot be written as JSON: {error}") from error
    return text.encode()


def check_place(key: Key | None, partition: int | None) -> int | None:
    """The partition; raises TypeError, ConfigError for a key or partition that cannot be."""
    if key is not None:
        check_key(key)
        if partition is not None:
            raise TypeError("give key or partition, not both")
    elif partition is not None:
        check_partition(partition)
    return partition


def make_trace_ids(given: object, count: int) -> tuple[int, ...]:
    """*given*, an unsigned number of 64 bits; or *count* random ids."""
    if given is None:
        # Not from random: children that were forked without its hook would draw the same ids.
        return tuple(secrets.randbits(63) or 1 for _ in range(count))
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"trace_id must be an int, not {type(given).__name__}")
    if not 0 <= given <= _MAX_TRACE_ID:
        raise ConfigError(f"trace_id {given} does not fit in 64 unsigned bits")
    return (given,)


def check_timeout(timeout: object) -> float:
    """Seconds, 0 or more."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be seconds, not {type(timeout).__name__}")
    if not 0 <= timeout < math.inf:
        raise ConfigError(f"timeout {timeout!r} must be 0 or more seconds, and finite")
    return float(timeout)


def check_count(name: str, count: object, least: int) -> int:
    """A whole number, *least* or more."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name} must be a whole number, not {type(count).__name__}")
    if count < least:
        raise ConfigError(f"{name} {count} must be {least} or more")
    return count


def check_delay(delay: object) -> int | None:
    """Seconds as milliseconds."""
    if delay is None:
        return None
    if isinstance(delay, bool) or not isinstance(delay, int | float):
        raise TypeError(f"delay must be seconds, not {type(delay).__name__}")
    if not 0 <= delay <= _MAX_DELAY:
        raise ConfigError(f"delay {delay!r} must be from 0 to {_MAX_DELAY:.0f} seconds")
    return round(delay * 1000)


def check_headers(headers: Mapping[str, Any] | None, tag: object) -> Mapping[str, Any] | None:
    """*headers*, of which with *tag* the JSON header of a message is made."""
    if tag is not None and (not isinstance(tag, str) or not tag):
        raise TypeError(f"tag must be a text that is not empty, not {tag!r}")
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers must be a dict, not {type(headers).__name__}")
    for name in headers:
        if not isinstance(name, str):
            raise TypeError(f"header {name!r} must have a text for a name")
        if name.startswith(RESERVED):
            raise ConfigError(f"header {name!r}: names that begin with {RESERVED} are the server's")
    _check_header(headers)
    return headers


def _check_header(headers: Mapping[str, Any]) -> None:
    try:
        size = len(encode_header(headers))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"headers cannot be written as JSON: {error}") from error
    if size > MAX_HEADER:
        raise ConfigError(f"headers take {size} bytes, {MAX_HEADER} is the limit")
