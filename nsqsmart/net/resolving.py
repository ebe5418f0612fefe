"""Host names to addresses without missing a deadline.

``getaddrinfo`` cannot be interrupted, so a name that is neither numeric nor remembered is resolved
on a transient daemon thread; a caller that waits leaves when its time is up. Later callers wait for
the same thread, for as long as it may still be right: where the resolver hangs, threads would
otherwise gather, one a call.
"""

from __future__ import annotations

import codecs
import os
import socket
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import NamedTuple

from nsqsmart.errors import ConnectError
from nsqsmart.names import Address
from nsqsmart.net.cancel_scope import CancelScope
from nsqsmart.net.threads import spawn

# What getaddrinfo encodes names with. Imported now: a child that is forked while a thread does it
# would wait for that thread's lock for ever.
codecs.lookup("idna")

_REMEMBER = 60.0
_MAX_NAMES = 1024
# A question is usually lost, or the server gone, when glibc has waited as long as that.
_ASK_ANEW = 5.0


class Resolved(NamedTuple):
    """What ``socket.connect`` needs."""

    family: int
    sockaddr: tuple[str | int | bytes, ...]


Answer = list[Resolved] | OSError


class _Question:
    """A name that a thread is resolving, and the callers that wait for the answer."""

    __slots__ = ("answer", "asked_at", "askers")

    def __init__(self) -> None:
        self.asked_at = monotonic()
        self.answer: Answer | None = None
        self.askers: list[SimpleQueue[Answer]] = []


_known: dict[Address, tuple[float, list[Resolved]]] = {}
# By process: threads do not live on in a child.
_open: dict[tuple[int, Address], _Question] = {}


def resolve(address: Address, deadline: float, scope: CancelScope | None = None) -> list[Resolved]:
    """Every address of the host; raises ConnectError when it has none or time is up.

    *scope* can end the wait.
    """
    numeric = _numeric(address)
    if numeric:
        return numeric
    remembered = _known.get(address)
    if remembered and monotonic() - remembered[0] < _REMEMBER:
        return remembered[1]
    answers: SimpleQueue[Answer] = SimpleQueue()
    _ask_on_a_thread(address, answers)
    try:
        if scope:
            scope.add(answers)
        answer = answers.get(timeout=max(0.0, deadline - monotonic()))
    except Empty:
        raise ConnectError(f"name {address.host!r} was not resolved in time") from None
    except ConnectionAbortedError as error:
        answer = error
    if isinstance(answer, OSError):
        raise ConnectError(f"name {address.host!r} cannot be resolved: {answer}") from answer
    return answer


def _ask_on_a_thread(address: Address, asker: SimpleQueue[Answer]) -> None:
    """Have the answer put into *asker*, by the thread that is asking already if there is one."""
    place = (os.getpid(), address)
    question = _open.get(place)
    if question is None or monotonic() - question.asked_at > _ASK_ANEW:
        _open[place] = question = _Question()
        question.askers.append(asker)
        try:
            spawn(f"resolve-{address.host}", partial(_answer, question, address, place))
        except RuntimeError:
            # Threads cannot start any more, as in atexit: better in place than not at all.
            _answer(question, address, place)
        return
    question.askers.append(asker)
    if question.answer is not None:
        # It may have been given while we came; twice does no harm.
        asker.put(question.answer)


def _answer(question: _Question, address: Address, place: tuple[int, Address]) -> None:
    """Ask, remember a good answer even if no caller waits any more, and wake all callers."""
    answer = _ask(address)
    if _open.get(place) is question:
        _open.pop(place, None)
    if not isinstance(answer, OSError):
        if len(_known) >= _MAX_NAMES:
            _known.clear()
        _known[address] = (monotonic(), answer)
    question.answer = answer
    for asker in question.askers:
        asker.put(answer)


def _numeric(address: Address) -> list[Resolved]:
    try:
        return _getaddrinfo(address, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):  # the latter for labels that no host name may have
        return []


def _ask(address: Address) -> Answer:
    try:
        return _getaddrinfo(address, 0)
    except (OSError, UnicodeError) as error:
        return error if isinstance(error, OSError) else OSError(str(error))


def _getaddrinfo(address: Address, flags: int) -> list[Resolved]:
    found = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=flags | socket.AI_NUMERICSERV
    )
    return [Resolved(family, sockaddr) for family, _, _, _, sockaddr in found]
