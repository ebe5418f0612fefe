"""Command-line flags the way the Go programs take them.

One dash or two, ``flag V`` or ``flag=V``; a bare flag of a switch means true. Unlike argparse, no
abbreviations, and importing this costs nothing.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from nsqsmart.embedded.gotext import parse_bool

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_MAX_PORT = 65535


_TLS_VERSIONS = {
    "tls1.0": ssl.TLSVersion.TLSv1,
    "tls1.1": ssl.TLSVersion.TLSv1_1,
    "tls1.2": ssl.TLSVersion.TLSv1_2,
    "tls1.3": ssl.TLSVersion.TLSv1_3,
}


class FlagError(Exception):
    """The command line cannot be used; the text says why."""


class Flag(NamedTuple):
    """One flag: how its text is read, and whether it may be given again, or without a value."""

    read: Callable[[str], Any]
    help: str
    repeatable: bool = False
    switch: bool = False


def parse(arguments: Sequence[str], flags: Mapping[str, Flag]) -> dict[str, Any]:
    """The values that were given, by name; repeatable ones are lists.

    Raises :class:`FlagError` for an unknown flag, a missing or unusable value, and anything that
    is not a flag.
    """
    values: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, text = _split(argument)
        flag = flags.get(name)
        if flag is None:
            raise FlagError(f"flag provided but not defined: -{name}")
        if text is None and flag.switch:
            text = "true"
        elif text is None:
            if not rest:
                raise FlagError(f"flag needs an argument: -{name}")
            text = rest.pop(0)
        try:
            value = flag.read(text)
        except ValueError as error:
            raise FlagError(f"invalid value {text!r} for flag -{name}: {error}") from error
        if flag.repeatable:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    return values


def _split(argument: str) -> tuple[str, str | None]:
    """The name of a flag, and the value after its ``=``."""
    stripped = argument.removeprefix("-").removeprefix("-")
    if stripped == argument or not stripped:
        raise FlagError(f"unexpected argument {argument!r}")
    name, equals, text = stripped.partition("=")
    return name, text if equals else None


def switch(text: str) -> bool:
    """A truth value, as Go writes them."""
    return parse_bool(text.encode())


def duration(text: str) -> float:
    """``60s``, ``1m30s`` or ``250ms``, in seconds; a bare number is milliseconds, as in nsqd."""
    if text.isascii() and text.isdigit():
        return int(text) / 1000
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("not a duration, as 250ms or 1m30s")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def tls_version(text: str) -> ssl.TLSVersion:
    """``tls1.0`` to ``tls1.3``."""
    found = _TLS_VERSIONS.get(text)
    if found is None:
        raise ValueError(f"none of {', '.join(_TLS_VERSIONS)}")
    return found


def address(text: str) -> tuple[str, int]:
    """``host:port``; no host means 127.0.0.1, unlike the real programs, which mean all."""
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch("[0-9]{1,5}", port) or int(port) > _MAX_PORT:
        raise ValueError("not host:port")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)
