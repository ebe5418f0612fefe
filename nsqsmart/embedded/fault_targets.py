"""What a fault can be about: verbs, frames and HTTP paths, by dialect."""

from __future__ import annotations

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
