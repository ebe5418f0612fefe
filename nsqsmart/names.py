"""Addresses, and the names NSQ accepts for topics and channels."""

from __future__ import annotations

import re
from enum import StrEnum
from ipaddress import ip_address
from typing import NamedTuple

from nsqsmart.errors import ConfigError

# 1 to 64 bytes including the suffix; protocol#sub. Always fullmatch: `$` would let "foo\n" pass.
_NAME = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?")
_MAX_NAME = 64
_MAX_PORT = 65535
# \d and \w would take digits and letters of every script.
_PORT = r"(?::([0-9]{1,5}))?"
_HOST = re.compile(r"([^\s\x00-\x1f\x7f/@?#\[\],:]+)" + _PORT)
_IPV6 = re.compile(r"\[([0-9a-fA-F.]*:[0-9a-fA-F:.]*(?:%[a-zA-Z0-9_.-]+)?)\]" + _PORT)
MAX_PARTITION = 1023
"""The largest partition number a redesigned nsqd can hold (10 bits of the message id)."""


class Dialect(StrEnum):
    """Which server a node is: nsqio/nsq or youzan/nsq."""

    ORIGINAL = "original"
    REDESIGNED = "redesigned"


class Address(NamedTuple):
    """A host and a TCP port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, default_port: int) -> Address:
        """``host``, ``host:port``, ``[v6]`` or ``[v6]:port``; raises :class:`ConfigError`."""
        match = _IPV6.fullmatch(text) or _HOST.fullmatch(text)
        if not match:
            raise ConfigError(
                f"address {text!r} is not host:port; write an IPv6 host in brackets, as [::1]:4150"
            )
        port = int(match[2]) if match[2] else default_port
        if not 0 < port <= _MAX_PORT:
            raise ConfigError(f"address {text!r}: port {port} is not between 1 and {_MAX_PORT}")
        return cls(match[1], port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_valid_name(name: str) -> bool:
    """Whether nsqd accepts *name* for a topic or channel."""
    return len(name) <= _MAX_NAME and _NAME.fullmatch(name) is not None


def is_loopback(host: str) -> bool:
    """Whether *host* is this machine: a number, or the one name that is known to be."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False  # the owner of a domain decides where 127.example leads


def check_topic(topic: object) -> str:
    """Return *topic*, or raise :class:`ConfigError` (TypeError if it is no str)."""
    return _check("topic", topic)


def check_channel(channel: object) -> str:
    """Return *channel*, or raise :class:`ConfigError` (TypeError if it is no str)."""
    return _check("channel", channel)


def check_partition(partition: object) -> int:
    """Return *partition*, or raise :class:`ConfigError` (TypeError if it is no int)."""
    if isinstance(partition, bool) or not isinstance(partition, int):
        raise TypeError(f"partition must be an int, not {type(partition).__name__}")
    if not 0 <= partition <= MAX_PARTITION:
        raise ConfigError(f"partition {partition} is not between 0 and {MAX_PARTITION}")
    return partition


def _check(what: str, name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a str, not {type(name).__name__}")
    if not is_valid_name(name):
        raise ConfigError(
            f"{what} {name!r} is not valid: 1 to {_MAX_NAME} characters of "
            "letters, digits, '.', '_' and '-', optionally ending in '#ephemeral'"
        )
    return name


def printable(text: str) -> str:
    """Return *text* of a peer, made safe for a log and a terminal.

    What would end its line, colour it or turn it round is escaped, as in a literal of Python.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
