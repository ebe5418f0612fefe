"""Which topics are traced, changed while the program runs.

::

    nsqsmart.tracing.enable("orders", rate=0.1)           # one message of ten
    nsqsmart.tracing.enable()                             # every message of every topic
    nsqsmart.tracing.disable("orders")
    nsqsmart.tracing.set_source("/etc/shop/trace.json")   # holds {"orders": 1.0, "*": 0.01}

These are the methods of one :class:`TraceSwitch`, which every client of the process looks at.
A Producer draws by the rate which messages to trace; a Consumer writes the life of every message
that was published with a trace id, when its topic's rate is above 0. Both write to the logger
``nsqsmart.trace``, at level INFO, one JSON object a message; to have them in a file of their own::

    handler = logging.FileHandler("trace.jsonl")          # its default format is the bare message
    logger = logging.getLogger("nsqsmart.trace")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False

Only redesigned servers trace; an original nsqd ignores the switch.
"""

from __future__ import annotations

import logging
import os
import random
import stat
import threading
from collections.abc import Callable
from time import monotonic

from nsqsmart.errors import ConfigError
from nsqsmart.names import check_topic
from nsqsmart.policy.trace_rates import (
    EVERY,
    MAX_DOCUMENT,
    Rates,
    check_rate,
    parse_rates,
    rate_for,
    read_rates,
)

__all__ = ["Source", "TraceSwitch", "disable", "enable", "is_on", "sampled", "set_source", "switch"]

log = logging.getLogger("nsqsmart")

Source = str | os.PathLike[str] | Callable[[], Rates]
"""The path of a JSON file, or a callable; both give ``{"orders": 1.0, "*": 0.01}``."""

_LOOK_INTERVAL = 1.0
_SHOWN = 5


class TraceSwitch:
    """Which share of each topic's messages is traced; at first, none.

    The last call counts: for the topics they name, :meth:`enable` and :meth:`disable` override the
    source, and a new source discards all of their calls. A topic's own rate overrides that of
    ``"*"``. Thread-safe, and usable on both sides of a fork.

    Args:
        source: the path of a JSON file, at most 256 KiB, or a callable without arguments; both
            give topics and their shares, as ``{"orders": 1.0, "*": 0.01}``. It is looked at when
            the switch is used, at most once a second, by the thread that uses it: the callable
            must answer at once. While what it gives is bad, its last good answer holds, and one
            warning says why.

    Raises:
        TypeError: the source is neither.
    """

    def __init__(self, source: Source | None = None) -> None:
        # Replaced whole, or one entry at a time: no step needs a lock.
        self._said: dict[str, float] = {}
        self._source: _Source | None = None
        self.silent = True
        """Whether no call ever asked for a trace: a publish checks only this until then."""
        if source is not None:
            self.set_source(source)

    def enable(self, topic: str | None = None, rate: float = 1.0) -> None:
        """Trace *rate* (0 to 1) of the messages of *topic*; None is every topic.

        Without a topic, what was said of single ones before is forgotten. Raises ConfigError, or
        TypeError for what is no name or number.
        """
        share = check_rate(rate)
        if topic is None:
            self._said = {EVERY: share}
        else:
            self._said[check_topic(topic)] = share
        self.silent = False

    def disable(self, topic: str | None = None) -> None:
        """Trace no message of *topic*; None is every topic, whatever was said before."""
        self.enable(topic, 0.0)

    def set_source(self, source: Source | None) -> None:
        """Take the rates from *source* from now on, until the next call changes that.

        What enable() and disable() said is forgotten. None: nothing is traced until enable().
        Raises TypeError.
        """
        made = None if source is None else _Source(source)
        self._said = {}
        self._source = made
        if made is not None:
            self.silent = False

    def is_on(self, topic: str) -> bool:
        """Whether any message of *topic* may be traced."""
        return not self.silent and self._rate(topic) > 0.0

    def sampled(self, topic: str) -> bool:
        """Decide for one message of *topic*: draw by its rate."""
        if self.silent:
            return False
        return random.random() < self._rate(topic)  # noqa: S311 - no secret hangs on it

    def _rate(self, topic: str) -> float:
        source = self._source
        return rate_for(topic, self._said, source.look() if source else {})

    def __repr__(self) -> str:
        source = self._source
        follows = f" source={source.name}" if source else ""
        return f"<TraceSwitch {_describe(self._said)}{follows}>"


class _Source:
    """A source of rates, and the last good rates it gave."""

    def __init__(self, source: Source) -> None:
        self._call: Callable[[], Rates]
        if callable(source):
            self._call = lambda: read_rates(source())
            self.name = getattr(source, "__qualname__", type(source).__name__)
        elif isinstance(source, str | os.PathLike):
            # Absolute: the program may change its directory.
            self.name = path = os.path.abspath(os.fspath(source))  # noqa: PTH100 - no Path needed
            self._call = lambda: parse_rates(_read(path))
        else:
            raise TypeError(
                f"source must be the path of a JSON file or a callable, not {type(source).__name__}"
            )
        self._rates: Rates = {}
        self._due = 0.0
        self._is_bad = False
        # By PID: a child of a fork shares no lock that another thread may have held.
        self._locks: dict[int, threading.Lock] = {}

    def look(self) -> Rates:
        """The rates, read again if they are a second old, unless another thread reads them now."""
        if monotonic() >= self._due:
            lock = self._locks.setdefault(os.getpid(), threading.Lock())
            if lock.acquire(blocking=False):
                try:
                    self._renew()
                finally:
                    lock.release()
        return self._rates

    def _renew(self) -> None:
        now = monotonic()
        if now < self._due:  # another thread has just been here
            return
        self._due = now + _LOOK_INTERVAL
        try:
            self._rates = self._call()
        except ConfigError as error:
            self._complain(str(error))
        except Exception as error:  # noqa: BLE001 - the application's callable may raise anything
            # Not its text: a URL with a secret may be in it.
            self._complain(f"it raised {type(error).__name__}")
        else:
            if self._is_bad:
                self._is_bad = False
                log.info("the trace rates from %s are good again", self.name)

    def _complain(self, reason: str) -> None:
        if not self._is_bad:
            self._is_bad = True
            log.warning(
                "the trace rates from %s cannot be used: %s; the last good ones hold (%s)",
                self.name,
                reason,
                _describe(self._rates),
            )


def _read(path: str) -> bytes:
    """At most one byte more than a document may have; raises :class:`ConfigError`."""
    try:
        with open(path, "rb", opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError("it is not a regular file")
            return file.read(MAX_DOCUMENT + 1)
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}") from error


def _open(path: str, flags: int) -> int:
    # A named pipe would block the publishing thread until another process writes to it.
    return os.open(path, flags | os.O_NONBLOCK)


def _describe(rates: Rates) -> str:
    """For logs: the first few of them."""
    shown = [f"{topic} {rate:g}" for topic, rate in list(rates.items())[:_SHOWN]]
    if len(rates) > _SHOWN:
        shown.append(f"{len(rates) - _SHOWN} more")
    return ", ".join(shown) or "none"


switch = TraceSwitch()
"""The switch that every client of this process reads."""

enable = switch.enable
disable = switch.disable
is_on = switch.is_on
sampled = switch.sampled
set_source = switch.set_source
