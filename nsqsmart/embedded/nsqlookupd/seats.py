"""Which of the lookup daemons of a cluster leads, and which are listed."""

from __future__ import annotations

import time
from typing import Any

from nsqsmart.embedded.nsqlookupd.server import Nsqlookupd

_RPC_PORT_OFFSET = 100
# A dead daemon led on for 14.7 s and was listed for 19.5 s, where nodes were missed for 20 to 24.
_LEADS_ON = 0.65
_LISTED_ON = 0.85


class Seats:
    """The lookup daemons; *election* is how long, in seconds, a lost node is missed."""

    def __init__(self, lookupds: list[Nsqlookupd], election: float) -> None:
        self._lookupds = lookupds
        self._leads_on, self._listed_on = election * _LEADS_ON, election * _LISTED_ON
        self._ended: dict[Nsqlookupd, float] = {}
        self._leader: Nsqlookupd | None = lookupds[0] if lookupds else None

    def changed(self, lookupd: Nsqlookupd) -> None:
        """A daemon came or went."""
        if not lookupd.listening:
            self._ended[lookupd] = time.monotonic()
            return
        # Another one took over meanwhile, though leader() was not called: it leads on.
        if lookupd is self._leader and time.monotonic() - self._ended[lookupd] >= self._leads_on:
            others = (each for each in self._lookupds if each.listening and each is not lookupd)
            self._leader = next(others, lookupd)
        self._ended.pop(lookupd, None)

    def leader(self) -> Nsqlookupd:
        """Who leads; for a while one that is gone."""
        leader = self._leader
        if leader is None or not self._seems_there(leader, self._leads_on):
            listening = (each for each in self._lookupds if each.listening)
            leader = self._leader = next(listening, leader or self._lookupds[0])
        return leader

    def _seems_there(self, lookupd: Nsqlookupd, long: float) -> bool:
        """Whether it listens, or has not been gone for *long* seconds."""
        ended = self._ended.get(lookupd)
        if lookupd.listening or ended is None:
            return lookupd.listening
        return time.monotonic() - ended < long

    def listlookup(self) -> dict[str, Any]:
        """The answer to /listlookup."""
        nodes = [_node(each) for each in self._lookupds if self._seems_there(each, self._listed_on)]
        return {"lookupdleader": _node(self.leader()), "lookupdnodes": nodes}


def _node(lookupd: Nsqlookupd) -> dict[str, Any]:
    """Ports are strings (protocol#listlookup)."""
    tcp, http = lookupd.tcp_address[1], lookupd.http_address[1]
    host, rpc = lookupd.options.broadcast_address, tcp + _RPC_PORT_OFFSET
    return {
        "ID": f"{host}:{rpc}:{tcp}:nsqlookup",
        "NodeIP": host,
        "TcpPort": str(tcp),
        "HttpPort": str(http),
        "RpcPort": str(rpc),
        "Epoch": 0,
    }
