"""What a :class:`~nsqsmart.testing.proxy.Proxy` can be told to do to a connection, and when.

Its faults are those of :mod:`nsqsmart.embedded.faults`, as far as they are about bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from nsqsmart.embedded import faults
from nsqsmart.embedded.faults import Action, Fault, FaultBook, Match, is_path

_ACTIONS: Final = (
    *(Action.DELAY, Action.RESET, Action.CLOSE, Action.GARBAGE, Action.STALL),
    *(Action.DROP, Action.HALF_OPEN),
)


class Direction(Enum):
    """Which way bytes go."""

    UP = auto()
    """From the client to the server."""
    DOWN = auto()


UP: Final = Direction.UP
DOWN: Final = Direction.DOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterBytes(Match):
    """The bytes after the first *behind* of a connection in one direction."""

    direction: Direction
    behind: int


class ProxyFaults(FaultBook):
    """The faults of a proxy; they are counted over all of its connections."""

    def take_piece(self, direction: Direction, name: str, sent: int, size: int) -> Fault | None:
        """The fault that acts on a piece of *size* bytes, after *sent* bytes in that direction."""

        def fits(match: Match) -> bool:
            if isinstance(match, AfterBytes):
                return match.direction is direction and sent <= match.behind < sent + size
            return match.command == name

        return self.choose(fits)

    def _complaint(self, fault: Fault) -> str:
        if fault.action is None:
            return "say what happens: .delay(seconds), .cut(), .stall(), ..."
        if fault.action not in _ACTIONS or (fault.execute and fault.action is not Action.DELAY):
            return f"no proxy can do {fault.action.name} on {fault.match.command}: a server can"
        return ""


def on(what: str, *, nth: int = 1, times: int = 1) -> Fault:
    """A fault on the *nth* command *what* that a client sends, as ``"PUB"``, and on the next ones.

    Or on the nth frame of that kind from the server: MESSAGE, RESPONSE, ERROR, HEARTBEAT. Counted
    over all connections. Raises ValueError for a name that no nsqd knows. Commands inside TLS,
    snappy and deflate cannot be told apart: use :func:`after` there.
    """
    if is_path(what):
        raise ValueError(f"{what!r} is HTTP, which goes by unread: use after(0, UP)")
    return faults.on(what, nth=nth, times=times)


def after(count: int, direction: Direction, *, nth: int = 1, times: int = 1) -> Fault:
    """A fault after *count* bytes in *direction*, on the *nth* connection that carries so many.

    It applies to the next bytes.
    """
    if count < 0:
        raise ValueError(f"after({count}, ...) is before the first one: count bytes from 0")
    what = f"byte {count}"
    return Fault(AfterBytes(command=what, nth=nth, times=times, direction=direction, behind=count))
