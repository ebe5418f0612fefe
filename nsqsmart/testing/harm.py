"""What a :class:`~nsqsmart.testing.proxy.Proxy` is told to do to a connection, and when."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from nsqsmart.embedded.faults import FRAMES, complaint, is_path

ALWAYS: Final = 1_000_000_000


class Direction(Enum):
    """Which way bytes go."""

    UP = auto()
    """From the client to the server."""
    DOWN = auto()


UP: Final = Direction.UP
DOWN: Final = Direction.DOWN


class Harm(Enum):
    """What is done to a piece, or to its connection."""

    DELAY = auto()
    CUT = auto()
    CLOSE = auto()
    STALL = auto()
    GARBAGE = auto()
    DROP = auto()
    HALF_OPEN = auto()


class Fault:
    """What is done, and when; made by :func:`on` or :func:`after`, finished by one method.

    ``acted`` counts how often it was.
    """

    def __init__(
        self, direction: Direction, *, name: str = "", behind: int = 0, nth: int = 1, times: int = 1
    ) -> None:
        if nth < 1 or times < 1 or behind < 0:
            raise ValueError(f"nth={nth} and times={times} are counted from 1, bytes from 0")
        self.direction = direction
        self.name = name
        self.behind = behind
        self.nth = nth
        self.times = times
        self.harm: Harm | None = None
        self.seconds = 0.0
        self.data = b""
        self.keep = 0
        self.seen = self.acted = 0

    def delay(self, seconds: float) -> Fault:
        """Hold it back for *seconds*, and everything after it."""
        self.seconds = seconds
        return self._do(Harm.DELAY)

    def cut(self, *, after: int = 0) -> Fault:
        """Let *after* bytes of it through, and end the connection by RST on both sides."""
        self.keep = after
        return self._do(Harm.CUT)

    def close(self, *, after: int = 0) -> Fault:
        """Let *after* bytes of it through, and end the connection in order on both sides."""
        self.keep = after
        return self._do(Harm.CLOSE)

    def stall(self) -> Fault:
        """Let nothing through from now on, either way; the connection stays."""
        return self._do(Harm.STALL)

    def garbage(self, data: bytes) -> Fault:
        """Put *data* in its place."""
        self.data = data
        return self._do(Harm.GARBAGE)

    def drop(self) -> Fault:
        """Swallow it; the connection goes on without it."""
        return self._do(Harm.DROP)

    def half_open(self) -> Fault:
        """Hang up on the server, and let the client believe that it is still connected."""
        return self._do(Harm.HALF_OPEN)

    def _do(self, harm: Harm) -> Fault:
        self.harm = harm
        return self


def on(what: str, *, nth: int = 1, times: int = 1) -> Fault:
    """A fault on the *nth* command *what* that a client sends, as ``"PUB"``, and on the next ones.

    Or on the nth frame of that kind from the server: MESSAGE, RESPONSE, ERROR, HEARTBEAT. Counted
    over all connections. Raises ValueError for a name that no nsqd knows. Commands inside TLS,
    snappy and deflate cannot be told apart: use :func:`after` there.
    """
    if is_path(what):
        raise ValueError(f"{what!r} is HTTP, which goes by unread: use after(0, UP)")
    if wrong := complaint(what):
        raise ValueError(wrong)
    return Fault(DOWN if what in FRAMES else UP, name=what, nth=nth, times=times)


def after(count: int, direction: Direction, *, nth: int = 1, times: int = 1) -> Fault:
    """A fault after *count* bytes in *direction*, on the *nth* connection that carries so many.

    It applies to the next bytes.
    """
    return Fault(direction, behind=count, nth=nth, times=times)
