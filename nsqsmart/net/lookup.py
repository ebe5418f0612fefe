"""Asking nsqlookupd over HTTP, against one deadline.

A fresh session per round: a shared one handed out other processes' answers after a fork.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from nsqsmart.errors import DiscoveryError
from nsqsmart.names import Address
from nsqsmart.policy.lookup_answers import (
    LookupAnswer,
    LookupPeers,
    Node,
    parse_lookup,
    parse_nodes,
    parse_peers,
)

if TYPE_CHECKING:
    from nsqsmart.net.http_session import HttpSession

T = TypeVar("T")


class Access(NamedTuple):
    """What a lookup is asked for: nodes to write to, or to read from."""

    mode: str

    @property
    def path(self) -> str:
        """Path and query, to be completed by the topic."""
        return f"/lookup?access={self.mode}&metainfo=true&topic="


WRITE = Access("w")
READ = Access("r")


class Round(NamedTuple):
    """What the lookupds said within the budget; ``failed`` names those that did not answer."""

    answers: list[LookupAnswer]
    failed: list[tuple[Address, str]]


class _Peer:
    """How one lookupd has done: past *threshold* failures it is asked ever less often."""

    __slots__ = ("address", "failures", "learned", "next_try")

    def __init__(self, address: Address, *, learned: bool) -> None:
        self.address = address
        self.learned = learned
        self.failures = 0
        self.next_try = 0.0

    def succeeded(self) -> None:
        self.failures = 0
        self.next_try = 0.0

    def failed(self, threshold: int) -> None:
        self.failures += 1
        over = self.failures - threshold
        self.next_try = monotonic() + min(60.0, 2.0 ** min(over, 6)) if over >= 0 else 0.0


class LookupOptions(NamedTuple):
    """Seconds, and a count of failures."""

    request_timeout: float
    listlookup_interval: float
    failure_threshold: int


class LookupClient:
    """Asks every lookupd, one after another, healthy ones first.

    Several threads may ask at once, each with a session of its own; what they learn of the
    lookupds is replaced whole, and a lost failure count is no harm.
    """

    def __init__(self, seeds: Sequence[Address], options: LookupOptions) -> None:
        self._seeds = tuple(dict.fromkeys(seeds))
        self._options = options
        self._peers = {seed: _Peer(seed, learned=False) for seed in self._seeds}
        self._leader: Address | None = None
        self._peers_due = 0.0
        self.original = False
        """Whether every /listlookup answer, at least one, was a 404: an original cluster."""

    def ask(self, topic: str, access: Access, deadline: float) -> Round:
        """What every lookupd says of *topic*, as far as half of the time left allows."""
        now = monotonic()
        limit = now + (deadline - now) / 2
        with _open_session() as session:
            self._refresh_peers(session, limit)
            answers: list[LookupAnswer] = []
            failed: list[tuple[Address, str]] = []
            for peer in self._in_order():
                if answers and monotonic() >= limit:
                    break
                answer = self._get(session, peer, access.path + topic, parse_lookup, limit, failed)
                if answer:
                    answers.append(answer)
        if not answers:
            raise DiscoveryError(f"no nsqlookupd answered ({_reasons(failed)})")
        return Round(answers, failed)

    def nodes_for_new_topic(self, topic: str, deadline: float) -> tuple[Node, ...]:
        """Where the first publish of an original cluster's new topic may go: nsqd creates it."""
        return self._nodes(topic, deadline, [])

    def nodes(self, deadline: float) -> tuple[Node, ...]:
        """Every nsqd that a lookup knows; raises DiscoveryError if none of them answers."""
        failed: list[tuple[Address, str]] = []
        found = self._nodes("", deadline, failed)
        if not found and len(failed) >= len(self._peers):
            raise DiscoveryError(f"no nsqlookupd answered ({_reasons(failed)})")
        return found

    def _nodes(
        self, topic: str, deadline: float, failed: list[tuple[Address, str]]
    ) -> tuple[Node, ...]:
        """The nodes that are not tombstoned for *topic*."""
        found: dict[Address, Node] = {}
        with _open_session() as session:
            for peer in self._in_order():
                nodes = self._get(
                    session,
                    peer,
                    "/nodes",
                    lambda status, body: parse_nodes(status, body, topic),
                    deadline,
                    failed,
                )
                found.update({node.address: node for node in nodes or ()})
        return tuple(found.values())

    def _in_order(self) -> list[_Peer]:
        """The leading lookupd and the healthy ones first; who failed too often only when due."""
        now = monotonic()
        peers = sorted(
            self._peers.values(), key=lambda peer: (peer.failures, peer.address != self._leader)
        )
        due = [peer for peer in peers if peer.next_try <= now]
        return due or peers

    def _refresh_peers(self, session: HttpSession, limit: float) -> None:
        """Learn the cluster's lookupds; where that fails those that are known serve."""
        interval = self._options.listlookup_interval
        if not interval or monotonic() < self._peers_due:
            return
        failed: list[tuple[Address, str]] = []
        originals = 0
        redesigned = False
        for peer in self._in_order():
            found = self._get(session, peer, "/listlookup", _peers_or_original, limit, failed)
            if found is _ORIGINAL:
                originals += 1
            elif found:
                self._learn(found)
                redesigned = True
                break
        if originals or redesigned:
            self.original = not redesigned
            self._peers_due = monotonic() + interval

    def _learn(self, found: LookupPeers) -> None:
        self._leader = found.leader or self._leader
        known = {address: _Peer(address, learned=True) for address in found.members} | self._peers
        # Seeds are never removed; the rest only once they are unlisted and fail as well.
        self._peers = {
            address: peer
            for address, peer in known.items()
            if not (peer.learned and peer.failures and found.members) or address in found.members
        }

    def _get(
        self,
        session: HttpSession,
        peer: _Peer,
        path: str,
        parse: Callable[[int, bytes], T],
        limit: float,
        failed: list[tuple[Address, str]],
    ) -> T | None:
        deadline = min(limit, monotonic() + self._options.request_timeout)
        try:
            answer = parse(*session.get(f"http://{peer.address}{path}", deadline))
        except DiscoveryError as error:
            peer.failed(self._options.failure_threshold)
            failed.append((peer.address, str(error)))
            return None
        peer.succeeded()
        return answer


def _reasons(failed: list[tuple[Address, str]]) -> str:
    return "; ".join(f"{address}: {reason}" for address, reason in failed) or "no time left"


def _open_session() -> HttpSession:
    """Only who looks up pays for the import of requests."""
    from nsqsmart.net.http_session import HttpSession  # noqa: PLC0415

    return HttpSession()


_ORIGINAL = LookupPeers(None, ())


def _peers_or_original(status: int, body: bytes) -> LookupPeers:
    peers = parse_peers(status, body)
    return _ORIGINAL if peers is None else peers
