"""Asking nsqlookupd over HTTP, against one deadline.

A fresh session per round: a shared one handed out other processes' answers after a fork.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import quote

from nsqsmart.errors import DiscoveryError
from nsqsmart.metrics import Metrics
from nsqsmart.names import Address
from nsqsmart.policy.answers.lookup import (
    LookupAnswer,
    LookupPeers,
    Node,
    parse_lookup,
    parse_nodes,
    parse_peers,
)

if TYPE_CHECKING:
    from nsqsmart.net.cancel_scope import CancelScope
    from nsqsmart.net.http.session import HttpSession

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

    __slots__ = ("address", "failures", "learned", "next_try", "reason")

    def __init__(self, address: Address, *, learned: bool) -> None:
        self.address = address
        self.learned = learned
        self.failures = 0
        self.next_try = 0.0
        self.reason = "no time left"

    def succeeded(self) -> None:
        self.failures = 0
        self.next_try = 0.0
        self.reason = "no time left"

    def failed(self, reason: str, threshold: int) -> None:
        self.reason = reason
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

    def __init__(
        self,
        seeds: Sequence[Address],
        options: LookupOptions,
        scope: CancelScope | None = None,
        meter: Metrics | None = None,
        permits: Callable[[Address], bool] = lambda _: True,
    ) -> None:
        """*permits* is asked about every lookup that another one names, and must say yes."""
        self._permits = permits
        self._seeds = tuple(dict.fromkeys(seeds))
        self._options = options
        self._scope = scope
        self._meter = meter
        self._peers = {seed: _Peer(seed, learned=False) for seed in self._seeds}
        self._leader: Address | None = None
        self._peers_due = 0.0
        self.original = False
        """Whether every /listlookup answer, at least one, was a 404: an original cluster."""

    def ask(self, topic: str, access: Access, deadline: float) -> Round:
        """What every lookupd says of *topic*, as far as half of the time left allows."""
        now = monotonic()
        limit = now + (deadline - now) / 2
        with _open_session(self._scope) as session:
            self._refresh_peers(session, (now + limit) / 2)
            # The # of an ephemeral topic would begin a fragment, which is not sent.
            path = access.path + quote(topic, safe="")
            answers: list[LookupAnswer] = []
            failed: list[tuple[Address, str]] = []
            for peer, until in self._in_turn(limit):
                answer = self._get(session, peer, path, parse_lookup, until, failed)
                if answer:
                    answers.append(answer)
        if not answers:
            raise _nobody_answered(failed)
        return Round(answers, failed)

    def nodes_for_new_topic(self, topic: str, deadline: float) -> tuple[Node, ...]:
        """Where the first publish of an original cluster's new topic may go: nsqd creates it."""
        now = monotonic()
        limit = now + (deadline - now) / 2
        answers, _ = self._ask_all(
            "/nodes", lambda status, body: parse_nodes(status, body, topic), limit
        )
        found = {node.address: node for nodes in answers for node in nodes}
        return tuple(found.values())

    def nodes(self, deadline: float) -> tuple[Node, ...]:
        """Every nsqd that a lookup knows; raises DiscoveryError if none of them answers."""
        answers = self.collect(
            "/nodes", lambda status, body: parse_nodes(status, body, ""), deadline
        )
        found = {node.address: node for nodes in answers for node in nodes}
        return tuple(found.values())

    def collect(self, path: str, parse: Callable[[int, bytes], T], deadline: float) -> list[T]:
        """What every lookup that answers says to *path*.

        Raises :class:`DiscoveryError` when none does.
        """
        answers, failed = self._ask_all(path, parse, deadline)
        if not answers:
            raise _nobody_answered(failed)
        return answers

    def survey(self, deadline: float) -> None:
        """Ask the lookups again, at once, for their leader and their dialect.

        Raises :class:`DiscoveryError` when none answers.
        """
        with _open_session(self._scope) as session:
            failed: list[tuple[Address, str]] = []
            if not self._ask_for_peers(session, deadline, failed):
                raise _nobody_answered(failed)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The lookups that are known, the leading one first."""
        peers = sorted(self._peers, key=lambda address: address != self._leader)
        return tuple(peers)

    def _ask_all(
        self, path: str, parse: Callable[[int, bytes], T], deadline: float
    ) -> tuple[list[T], list[tuple[Address, str]]]:
        failed: list[tuple[Address, str]] = []
        with _open_session(self._scope, listing=True) as session:
            answers = [
                self._get(session, peer, path, parse, until, failed)
                for peer, until in self._in_turn(deadline)
            ]
        return [answer for answer in answers if answer is not None], failed

    def _in_order(self) -> list[_Peer]:
        """The leading lookupd and healthy ones first; one that failed too often only when due."""
        now = monotonic()
        peers = sorted(
            self._peers.values(), key=lambda peer: (peer.failures, peer.address != self._leader)
        )
        due = [peer for peer in peers if peer.next_try <= now]
        return due or peers

    def _in_turn(self, limit: float) -> Iterator[tuple[_Peer, float]]:
        """Each lookupd with its share of the time until *limit*: one that hangs takes no more."""
        peers = self._in_order()
        for position, peer in enumerate(peers):
            now = monotonic()
            yield peer, now + (limit - now) / (len(peers) - position)

    def _refresh_peers(self, session: HttpSession, limit: float) -> None:
        """Learn the cluster's lookupds; if that fails, the known ones are used."""
        interval = self._options.listlookup_interval
        if not interval or monotonic() < self._peers_due:
            return
        if self._ask_for_peers(session, limit, []):
            self._peers_due = monotonic() + interval

    def _ask_for_peers(
        self, session: HttpSession, limit: float, failed: list[tuple[Address, str]]
    ) -> bool:
        """Whether a lookupd answered; the first one that knows the others is enough."""
        originals = 0
        redesigned = False
        for peer, until in self._in_turn(limit):
            found = self._get(session, peer, "/listlookup", _peers_or_original, until, failed)
            if found is _ORIGINAL:
                originals += 1
            elif found:
                self._learn(found)
                redesigned = True
                break
        if originals or redesigned:
            self.original = not redesigned
        return bool(originals) or redesigned

    def _learn(self, found: LookupPeers) -> None:
        self._leader = found.leader or self._leader
        if not self._options.listlookup_interval:
            return
        named = [each for each in found.members if each in self._peers or self._permits(each)]
        known = {address: _Peer(address, learned=True) for address in named} | self._peers
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
        now = monotonic()
        if now >= limit:
            # It has not failed: it was not asked. Why it failed before tells more.
            failed.append((peer.address, peer.reason))
            return None
        deadline = min(limit, now + self._options.request_timeout)
        answer: T | None = None
        try:
            answer = parse(*session.get(f"http://{peer.address}{path}", deadline))
        except DiscoveryError as error:
            peer.failed(str(error), self._options.failure_threshold)
            failed.append((peer.address, peer.reason))
        else:
            peer.succeeded()
        if self._meter is not None:
            ok = peer.failures == 0
            self._meter.looked_up(str(peer.address), monotonic() - now, ok=ok)
        return answer


def _open_session(scope: CancelScope | None = None, *, listing: bool = False) -> HttpSession:
    """Imported on first use: a client that never looks up does not pay for requests."""
    from nsqsmart.net.http.session import (  # noqa: PLC0415
        MAX_ANSWER,
        MAX_LISTING,
        HttpSession,
    )

    return HttpSession(MAX_LISTING if listing else MAX_ANSWER, scope)


def _nobody_answered(failed: Sequence[tuple[Address, str]]) -> DiscoveryError:
    reasons = "; ".join(f"{address}: {reason}" for address, reason in failed)
    return DiscoveryError(f"no nsqlookupd answered ({reasons or 'no time left'})")


_ORIGINAL = LookupPeers(None, ())


def _peers_or_original(status: int, body: bytes) -> LookupPeers:
    peers = parse_peers(status, body)
    return _ORIGINAL if peers is None else peers
