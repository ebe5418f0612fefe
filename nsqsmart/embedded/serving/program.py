"""What both stand-in programs do: flags, signals, and lines on standard error."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nsqsmart.embedded.serving.flags import Flag, FlagError, parse, switch
from nsqsmart.embedded.serving.versions import VERSIONS
from nsqsmart.names import Dialect, is_loopback

_PLAIN = {"version", "help", "h"}
_LISTENING = ("tcp-address", "http-address", "https-address")
_CHECKED = (signal.SIGTERM, signal.SIGINT)


def dialect(text: str) -> Dialect:
    """``original`` or ``redesigned``."""
    return Dialect(text)


COMMON = {
    "dialect": Flag(dialect, "original or redesigned (default original)"),
    "version": Flag(str, "print the version and exit", switch=True),
    "help": Flag(str, "print the flags and exit", switch=True),
    "h": Flag(str, "print the flags and exit", switch=True),
    "expose": Flag(switch, "let other machines connect: nothing here is secured", switch=True),
    "verbose": Flag(str, "accepted and ignored", switch=True),
    "config": Flag(str, "accepted and ignored"),
    "log-level": Flag(str, "accepted and ignored"),
    "log-prefix": Flag(str, "accepted and ignored"),
    "log_dir": Flag(str, "accepted and ignored"),
}


def say(program: str, text: str) -> None:
    """One line of the log, as the real programs write it."""
    now = time.strftime("%Y/%m/%d %H:%M:%S")
    print(f"[{program}] {now}.000000 INFO: {text}", file=sys.stderr, flush=True)  # noqa: T201


def read_flags(
    program: str, arguments: Sequence[str], flags: Mapping[str, Flag]
) -> dict[str, Any] | int:
    """The values, or the exit code of a program that has nothing more to do."""
    try:
        values = parse(arguments, flags)
        _check_hosts(program, values)
    except FlagError as error:
        print(f"{program}: {error}", file=sys.stderr)  # noqa: T201
        return 1
    if _PLAIN & values.keys():
        if "version" in values:
            version = VERSIONS[values.get("dialect", Dialect.ORIGINAL)]
            python = ".".join(map(str, sys.version_info[:3]))
            print(f"{program} v{version} (built w/python{python})")  # noqa: T201
        else:
            for name, flag in flags.items():
                print(f"  -{name}\n\t{flag.help}")  # noqa: T201
        return 0
    return values


def _check_hosts(program: str, values: Mapping[str, Any]) -> None:
    """Raise FlagError where other machines could connect, unless that is meant; then warn."""
    for name in _LISTENING:
        host, _ = values.get(name, ("127.0.0.1", 0))
        if is_loopback(host):
            continue
        if not values.get("expose"):
            raise FlagError(
                f"-{name} {host}: other machines could connect; give -expose if that is meant"
            )
        say(program, f"WARNING: other machines can connect to {host}; this is no server to expose")


def run_until_signal(program: str, start: Callable[[], None], stop: Callable[[], None]) -> int:
    """Start, wait for SIGTERM or SIGINT, stop; the exit code.

    A port that is taken is said in one line.
    """
    # Blocked in every thread that starts from here on, and taken by the wait below.
    signal.pthread_sigmask(signal.SIG_BLOCK, _CHECKED)
    try:
        start()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        print(f"{program}: cannot listen: {reason}", file=sys.stderr)  # noqa: T201
        return 1
    signal.sigwait(_CHECKED)
    stop()
    say(program, "bye")
    return 0
