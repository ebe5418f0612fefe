"""Host names to addresses without missing a deadline.

``getaddrinfo`` cannot be interrupted, so a name that is neither numeric nor remembered is resolved
on a transient daemon thread; whoever waits leaves when its time is up.
"""

from __future__ import annotations

import socket
from queue import Empty, SimpleQueue
import codecs
import os
from time import monotonic
from typing import NamedTuple

from nsqsmart.errors import ConnectError
from nsqsmart.names import Address
from nsqsmart.net.threads import spawn

_REMEMBER = 60.0
_MAX_NAMES = 1024

# What getaddrinfo encodes names with. Imported now: a child that is forked while a thread does it
# would wait for that thread's lock for ever.
codecs.lookup("idna")


class Resolved(NamedTuple):
    """What ``socket.connect`` needs."""

    family: int
    sockaddr: tuple[str | int | bytes, ...]


_known: dict[Address, tuple[float, list[Resolved]]] = {}


def resolve(address: Address, deadline: float) -> list[Resolved]:
    """Every address of the host; raises ConnectError when it has none or time is up."""
    numeric = _numeric(address)
    if numeric:
        return numeric
    remembered = _known.get(address)
    if remembered and monotonic() - remembered[0] < _REMEMBER:
        return remembered[1]
    answers: SimpleQueue[list[Resolved] | OSError] = SimpleQueue()
    try:
        spawn(f"resolve-{address.host}", lambda: answers.put(_ask(address)))
    except RuntimeError:
        # Threads cannot start any more, as in atexit: better in place than not at all.
        answers.put(_ask(address))
    try:
        answer = answers.get(timeout=max(0.0, deadline - monotonic()))
    except Empty:
        raise ConnectError(f"name {address.host!r} was not resolved in time") from None
    if isinstance(answer, OSError):
        raise ConnectError(f"name {address.host!r} cannot be resolved: {answer}") from answer
    if len(_known) >= _MAX_NAMES:
        _known.clear()
    _known[address] = (monotonic(), answer)
    return answer


def _numeric(address: Address) -> list[Resolved]:
    try:
        return _getaddrinfo(address, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):  # the latter for labels that no host name may have
        return []


def _ask(address: Address) -> list[Resolved] | OSError:
    try:
        return _getaddrinfo(address, 0)
    except (OSError, UnicodeError) as error:
        return error if isinstance(error, OSError) else OSError(str(error))


def _getaddrinfo(address: Address, flags: int) -> list[Resolved]:
    found = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=flags | socket.AI_NUMERICSERV
    )
    return [Resolved(family, sockaddr) for family, _, _, _, sockaddr in found]
