"""Faults on command: on the nth command or frame, never on a timer.

>>> fault = on("PUB", nth=2, topic="orders").store_then_reply("E_PUB_FAILED")

A fault counts the commands that match from the moment it was added, and acts on the nth (and on
the ``times - 1`` after it). What is matched is a verb as it stands on the wire (``PUB``, ``SUB``,
``FIN``), a frame that is about to be sent (``MESSAGE``, ``HEARTBEAT``, ``RESPONSE``, ``ERROR``),
or a path of an HTTP interface of an nsqd or a lookup daemon (``/pub``, ``/lookup``). A fault that
could never act is refused when it is added.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol

from nsqsmart.names import Dialect

FRAMES = frozenset({"MESSAGE", "HEARTBEAT", "RESPONSE", "ERROR"})
"""What an nsqd sends."""

WITHOUT_TOPIC = frozenset({"IDENTIFY", "AUTH", "INTERNAL_CREATE_TOPIC"})
"""Verbs of which a fault learns no topic: they name none, or come before there is one."""

_VERBS = "IDENTIFY AUTH RDY FIN REQ TOUCH CLS NOP PUB MPUB SUB"
_PATHS = """
    /ping /info /debug /lookup /topics /channels /nodes /stats /pub /mpub /config/*
    /topic/create /topic/delete /topic/tombstone
    /channel/create /channel/delete /channel/empty /channel/pause /channel/unpause
"""
_ORIGINAL = "DPUB /topic/empty /topic/pause /topic/unpause"
_REDESIGNED = """
    PUB_TRACE PUB_EXT MPUB_TRACE MPUB_EXT INTERNAL_CREATE_TOPIC SUB_ADVANCED SUB_ORDERED
    /listlookup /topic/partition/expand /topic/partition/move /topic/meta/update
    /cluster/stats /cluster/node/remove /cluster/upgrade/begin /cluster/upgrade/done
    /cluster/balance/topn /cluster/lookupd/tombstone /loglevel/set /disable/write
    /pub_ext /pubtrace /channel/skip /channel/unskip /channel/skipZanTest /channel/unskipZanTest
    /channel/setoffset /channel/setorder
    /message/finish /message/stats /message/get /message/historystats
    /message/trace/enable /message/trace/disable
    /channel/fixconfirmed /channel/finishmemdelayed /channel/emptydelayed
    /channel/requeuedelayed /channel/setclientlimit /channel/ratelimit
    /coordinator/stats /serverstats
"""
_OWN = {Dialect.ORIGINAL: _ORIGINAL, Dialect.REDESIGNED: _REDESIGNED}
_ANY_OPTION = "/config/*"

ALWAYS = 1_000_000_000


def targets(dialect: Dialect | None = None) -> frozenset[str]:
    """Every name that a fault can be about; of both dialects if None."""
    own = _OWN.values() if dialect is None else [_OWN[dialect]]
    return FRAMES.union(_VERBS.split(), _PATHS.split(), *(names.split() for names in own))


def is_path(command: str) -> bool:
    """Whether it is about HTTP."""
    return command.startswith("/")


def complaint(command: str, dialect: Dialect | None = None) -> str:
    """Why no fault can ever act on *command*; empty if one can."""
    known = targets(dialect)
    if command != _ANY_OPTION and _family(command) in known:
        return ""
    where = "servers" if dialect is None else f"{dialect} servers"
    near = _nearest(command, known)
    hint = f"; did you mean {near!r}?" if near else ""
    return f"{where} know no {command!r}{hint} (known: {_listed(known)})"


def _family(command: str) -> str:
    head, _, option = command.rpartition("/")
    return _ANY_OPTION if head == "/config" and option else command


def _nearest(command: str, known: frozenset[str]) -> str:
    # Only a mistake needs it, and the stand-in programs must start at once.
    from difflib import get_close_matches  # noqa: PLC0415

    # A verb and a path may differ in case and slash alone: of the kind that was meant, the last.
    kinds = sorted(known, key=lambda name: is_path(name) is is_path(command))
    plain = {_plain(name): name for name in kinds}
    return next((plain[name] for name in get_close_matches(_plain(command), plain, n=1)), "")


def _plain(name: str) -> str:
    return name.lower().strip("/")


def _listed(known: frozenset[str]) -> str:
    return ", ".join(sorted(known, key=lambda name: (is_path(name), name)))


class Action(Enum):
    """What happens instead of, before or after the command."""

    REPLY = auto()
    DELAY = auto()
    RESET = auto()
    CLOSE = auto()
    GARBAGE = auto()
    STALL = auto()
    MOVE_LEADER = auto()
    NO_PARTITIONS = auto()
    DROP = auto()
    HALF_OPEN = auto()


_ON_FRAMES = (Action.GARBAGE, Action.RESET, Action.CLOSE, Action.STALL)
_STATUSES = (200, 599)
ONLY_PROXIES = frozenset({"cut", "drop", "half_open"})
"""What a server cannot do, and :class:`nsqsmart.testing.proxy.Proxy` can."""


class FaultPlace(NamedTuple):
    """Where a command arrived; the node's name is its host:port."""

    node: str
    topic: str = ""
    partition: int | None = None


class Named(Protocol):
    """A server of a cluster."""

    @property
    def name(self) -> str:
        """Its host:port."""


class FaultUnknown(ValueError):
    """The fault could never act: no such command, no action, or one that it cannot have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Which commands a fault is about; None matches any."""

    command: str
    nth: int = 1
    times: int = 1
    node: str | None = None
    topic: str | None = None
    partition: int | None = None

    def __post_init__(self) -> None:
        """Raise :class:`FaultUnknown` for counts that begin below 1."""
        if self.nth < 1 or self.times < 1:
            counts = f"nth={self.nth}, times={self.times} on {self.command}"
            raise FaultUnknown(f"{counts}: both are counted from 1")

    def fits(self, command: str, place: FaultPlace) -> bool:
        """Whether the command counts."""
        return (
            command == self.command
            and self.node in (None, place.node)
            and self.topic in (None, place.topic)
            and self.partition in (None, place.partition)
        )


class Fault:
    """A match and what is done to it; made by :func:`on`, finished by one of the methods.

    ``acted`` counts how often it was done. Servers refuse what only a
    :class:`~nsqsmart.testing.proxy.Proxy` can do: :meth:`cut`, :meth:`drop`, :meth:`half_open`,
    and *after* of :meth:`close`. A proxy does these, and of the others :meth:`delay`,
    :meth:`reset`, :meth:`close`, :meth:`garbage` and :meth:`stall`.
    """

    def __init__(self, match: Match) -> None:
        self.match = match
        self.action: Action | None = None
        self.execute = False
        self.code = ""
        self.text = ""
        self.fatal: bool | None = None
        self.seconds = 0.0
        self.data = b""
        self.keep = 0
        self.seen = 0
        self.acted = 0

    def reply(self, code: str, text: str = "", *, fatal: bool | None = None) -> Fault:
        """Answer an error frame and do nothing; on HTTP, *code* is the status.

        *fatal* closes the connection after it; None does what the server does with this code.
        """
        self.code, self.text, self.fatal = code, text, fatal
        return self._do(Action.REPLY)

    def store_then_reply(self, code: str, text: str = "", *, fatal: bool | None = None) -> Fault:
        """Do what was asked, and say that it failed."""
        self.execute = True
        return self.reply(code, text, fatal=fatal)

    def store_then_reset(self) -> Fault:
        """Do what was asked, and reset the connection instead of answering."""
        self.execute = True
        return self.reset()

    def store_then_close(self) -> Fault:
        """Do what was asked, and close the connection instead of answering."""
        self.execute = True
        return self.close()

    def store_then_stall(self) -> Fault:
        """Do what was asked, and never answer."""
        self.execute = True
        return self.stall()

    def delay(self, seconds: float) -> Fault:
        """Do what was asked *seconds* later."""
        self.seconds = seconds
        self.execute = True
        return self._do(Action.DELAY)

    def reset(self) -> Fault:
        """End the connection by RST; nothing is done."""
        return self._do(Action.RESET)

    def close(self, *, after: int = 0) -> Fault:
        """End the connection in order; nothing is done, and *after* bytes of it come through."""
        self.keep = after
        return self._do(Action.CLOSE)

    def cut(self, *, after: int = 0) -> Fault:
        """Let *after* bytes of it through, and end the connection by RST on both sides."""
        self.keep = after
        return self.reset()

    def drop(self) -> Fault:
        """Swallow it; the connection goes on without it."""
        return self._do(Action.DROP)

    def half_open(self) -> Fault:
        """Hang up on the server, and let the client believe that it is still connected."""
        return self._do(Action.HALF_OPEN)

    def garbage(self, data: bytes) -> Fault:
        """Answer *data*, whatever it is; nothing is done."""
        self.data = data
        return self._do(Action.GARBAGE)

    def stall(self) -> Fault:
        """Say and read nothing on this connection any more; nothing is done."""
        return self._do(Action.STALL)

    def move_leader(self) -> Fault:
        """Begin to move the partition's leader, then do what was asked."""
        self.execute = True
        return self._do(Action.MOVE_LEADER)

    def no_partitions(self) -> Fault:
        """Answer a /lookup with 200 and no partitions, as after an outage of etcd.

        See protocol#lost-lookup.
        """
        return self._do(Action.NO_PARTITIONS)

    def _do(self, action: Action) -> Fault:
        self.action = action
        return self

    @property
    def spent(self) -> bool:
        """Whether it has acted as often as it should."""
        return self.acted >= self.match.times


def on(
    command: str,
    *,
    nth: int = 1,
    times: int = 1,
    nsqd: Named | None = None,
    topic: str | None = None,
    partition: int | None = None,
) -> Fault:
    """A fault on the *nth* such command; *nsqd* is one server of the cluster, any if None.

    Raises :class:`FaultUnknown` if no server knows the command.
    """
    _refuse(complaint(command))
    node = None if nsqd is None else nsqd.name
    return Fault(
        Match(command=command, nth=nth, times=times, node=node, topic=topic, partition=partition)
    )


def _refuse(complaint: str) -> None:
    if complaint:
        raise FaultUnknown(complaint)


def _match_complaint(match: Match, dialect: Dialect | None) -> str:
    """What of the conditions can never hold."""
    command = match.command
    if match.partition is not None and dialect is Dialect.ORIGINAL:
        return f"partition={match.partition} on {command}: an original cluster has no partitions"
    if (match.topic, match.partition) == (None, None):
        return ""
    if command in WITHOUT_TOPIC | FRAMES - {"MESSAGE"}:
        given = f"topic={match.topic!r}" if match.topic is not None else f"{match.partition=}"
        return f"{given.removeprefix('match.')} on {command}: it is about no topic"
    return ""


def _action_complaint(fault: Fault, dialect: Dialect | None) -> str:
    """Why the command cannot have the action."""
    command, action = fault.match.command, fault.action
    if action is None:
        return f"say what happens on {command}: .reply(...), .reset()"
    if fault.keep or action in (Action.DROP, Action.HALF_OPEN):
        return f".{action.name.lower()}() on {command}: only a nsqsmart.testing.proxy can do that"
    if action is Action.NO_PARTITIONS and command != "/lookup":
        return f"only /lookup answers with no partitions, not {command}"
    if command in FRAMES and (fault.execute or action not in _ON_FRAMES):
        done = f"store_then_{action.name.lower()}" if _stores(fault) else action.name.lower()
        known = ", ".join(f".{each.name.lower()}()" for each in _ON_FRAMES)
        return f".{done}() on the frame {command}: only {known} make sense there"
    if action is Action.MOVE_LEADER:
        return _move_complaint(command, dialect)
    if is_path(command) and action is Action.REPLY and not _is_status(fault.code):
        return f".reply({fault.code!r}) on {command}: a path answers a status, 200 to 599"
    return ""


def _stores(fault: Fault) -> bool:
    """Whether it was made by one of the store_then methods; others carry commands out as well."""
    return fault.execute and fault.action not in (Action.DELAY, Action.MOVE_LEADER)


def _move_complaint(command: str, dialect: Dialect | None) -> str:
    if dialect is Dialect.ORIGINAL:
        return f".move_leader() on {command}: topics of an original cluster have no leader to move"
    if is_path(command) or command in WITHOUT_TOPIC:
        return f".move_leader() on {command}: only a command about a partition has a leader to move"
    return ""


def _is_status(code: str) -> bool:
    return code.isdecimal() and _STATUSES[0] <= int(code) <= _STATUSES[1]


class FaultBook:
    """The faults of a cluster."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self.armed = False
        """Whether there is any: looked at for every command, without the lock."""
        self.dialect: Dialect | None = None
        """What the servers speak; None if that is not known."""

    def add(self, fault: Fault) -> Fault:
        """Begin to count for *fault*; raises :class:`FaultUnknown` if it could never act."""
        _refuse(self._complaint(fault))
        with self._lock:
            self._faults.append(fault)
            self.armed = True
        return fault

    def _complaint(self, fault: Fault) -> str:
        """Why *fault* could never act; empty if it can."""
        return (
            complaint(fault.match.command, self.dialect)
            or _match_complaint(fault.match, self.dialect)
            or _action_complaint(fault, self.dialect)
        )

    def remove(self, fault: Fault) -> None:
        """Call one off; nothing happens if it is spent."""
        with self._lock:
            self._faults = [each for each in self._faults if each is not fault]
            self.armed = bool(self._faults)

    def clear(self) -> None:
        """Forget every fault."""
        with self._lock:
            self._faults.clear()
            self.armed = False

    def take(self, command: str, place: FaultPlace) -> Fault | None:
        """Count the command; the fault that acts on it, if one does."""
        return self.choose(lambda match: match.fits(command, place))

    def choose(self, fits: Callable[[Match], bool]) -> Fault | None:
        """Count for every fault whose match *fits*; the first one that acts now, if one does."""
        with self._lock:
            chosen: Fault | None = None
            for fault in self._faults:
                if fault.spent or not fits(fault.match):
                    continue
                fault.seen += 1
                if chosen is None and fault.seen >= fault.match.nth:
                    fault.acted += 1
                    chosen = fault
            if chosen is not None and chosen.spent:
                self._faults = [fault for fault in self._faults if not fault.spent]
                self.armed = bool(self._faults)
            return chosen
