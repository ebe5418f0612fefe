"""One call of an Admin: finds the servers it concerns, and asks them until it is done or time ends.

Which servers are asked depends on the dialect. In an original cluster every nsqd has topics and
channels of its own, and the lookups are told as well. In a redesigned one the leading lookup
decides on topics, and the leader of each partition, which may move meanwhile, on channels. The
nsqds of an ``nsq://`` address have no lookups: they are asked themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from time import monotonic, sleep

from nsqsmart.client.shared.directory import Directory
from nsqsmart.client.shared.discovery import http_address, make_lookup, usable_node
from nsqsmart.config import AdminConfig, Endpoint
from nsqsmart.errors import ConfigError, DiscoveryError, NotSupported, TopicNotExist
from nsqsmart.names import Address, Dialect
from nsqsmart.net.http.admin import AdminHttp
from nsqsmart.net.http.lookup import READ
from nsqsmart.policy.answers.lookup import Node, TopicState
from nsqsmart.policy.answers.nodes import Listed, parse_info, parse_listing, parse_topics, unite
from nsqsmart.policy.answers.operations import Answer, Operation, Verdict, failure, judge
from nsqsmart.policy.answers.stats import (
    Replicas,
    Stats,
    TopicStats,
    Unreachable,
    choose,
    parse_in_sync,
    parse_stats,
)
from nsqsmart.policy.topology import Refused, Target, Topology

_HTTP_PORT = 4151

# A redesigned nsqd answers after 12 s while a follower is dead (protocol#lost-follower).
_PATIENCE = 20.0
_STATS_PATIENCE = 5.0
_STATS_QUERY = (
    ("format", "json"),
    # Of the original, then of the redesigned nsqd: clients are counted without being named.
    ("include_clients", "false"),
    ("include_mem", "false"),
    ("needClients", "false"),
)
_UNDECIDED = (Verdict.AGAIN, Verdict.UNREACHABLE)

Place = int | Address
"""A partition, or an original nsqd beside redesigned ones."""


def read_http_addresses(endpoint: Endpoint, config: AdminConfig) -> tuple[Address, ...]:
    """What ``nsqd_http_addresses`` says, in the order of the nsqds of *endpoint*; () for nothing.

    Raises ConfigError where it cannot be used.
    """
    if config.nsqd_http_addresses is None:
        return ()
    if endpoint.discovers or endpoint.embedded:
        raise ConfigError(
            "nsqd_http_addresses is for nsq:// addresses: lookups tell those of their nsqds"
        )
    parts = config.nsqd_http_addresses.split(",")
    found = tuple(Address.parse(part.strip(), _HTTP_PORT) for part in parts)
    if len(found) != len(endpoint.addresses):
        raise ConfigError(
            f"nsqd_http_addresses names {len(found)} and {endpoint} has "
            f"{len(endpoint.addresses)}: give one for each nsqd, in their order"
        )
    return found


class LoneNsqds:
    """Asks nsqds themselves what a lookup would tell of them.

    Args:
        places: TCP and HTTP address of each.
    """

    def __init__(self, places: list[tuple[Address, Address]]) -> None:
        self._places = places

    def nodes(self, http: AdminHttp) -> list[Listed]:
        """All of them; one that does not answer has no version and no topics."""
        found = []
        for left, (address, server) in zip(
            range(len(self._places) - 1, -1, -1), self._places, strict=True
        ):
            try:
                found.append(_ask(http, address, server, left))
            except DiscoveryError:
                found.append(Listed(Node(address, server), "", frozenset()))
        return found

    def dialects(self, http: AdminHttp) -> set[Dialect]:
        """Of those that answer; raises DiscoveryError if none does."""
        found = {each.node.dialect for each in self.nodes(http) if each.node.version}
        if not found:
            servers = ", ".join(str(server) for _, server in self._places)
            raise DiscoveryError(f"no nsqd answers over HTTP (asked: {servers})")
        return found


def _ask(http: AdminHttp, address: Address, server: Address, others: int) -> Listed:
    version, hostname = parse_info(*http.get(server, "/info", (), others))
    entries = parse_stats(*http.get(server, "/stats", (("format", "json"),), others), str(address))
    return Listed(
        Node(address, server, version), hostname, frozenset(each.topic for each in entries)
    )


class AdminCall:
    """One call: a deadline, lookups, requests. Nothing of it outlives the call.

    With *lone* nsqds there are no lookups: the nsqds are asked what those would tell.
    """

    def __init__(
        self, endpoint: Endpoint, config: AdminConfig, lone: LoneNsqds | None = None
    ) -> None:
        self._config = config
        self._lone = lone
        self._deadline = monotonic() + config.admin_timeout
        self._lookup = make_lookup(endpoint, config)
        self._directory = Directory(endpoint, config, READ)

    # ---------------------------------------------------------------------------- what there is

    def survey(self) -> None:
        """Learn which lookup leads; raises DiscoveryError when none answers."""
        if self._lone is None:
            self._lookup.survey(self._deadline)

    def check_lone(self, method: str) -> None:
        """Raise NotSupported for lone redesigned nsqds: their lookups decide on changes."""
        if self._lone is None:
            return
        with self._http(_STATS_PATIENCE) as http:
            dialects = self._lone.dialects(http)
        if Dialect.REDESIGNED in dialects:
            raise NotSupported(
                f"{method}: a redesigned nsqd takes that from its nsqlookupd",
                hint="use nsq+lookupd://HOST:4161",
            )

    def is_original(self) -> bool:
        """The dialect of the lookups."""
        self.survey()
        return self._lone is not None or self._lookup.original

    def topology(self, topic: str, seen: int = 0, refused: list[Refused] | None = None) -> Topology:
        """The topology of *topic*, newer than generation *seen*."""
        return self._directory.refresh(topic, seen, self._deadline, refused=refused or ())

    def topics(self) -> list[str]:
        """Every topic that a lookup knows, sorted."""
        if self._lone is not None:
            return sorted({topic for each in self.nodes() for topic in each.topics})
        listings = self._lookup.collect("/topics", parse_topics, self._deadline)
        return sorted({topic for listing in listings for topic in listing})

    def nodes(self) -> list[Listed]:
        """Every nsqd that a lookup lists, at the addresses to dial."""
        if self._lone is not None:
            with self._http(_STATS_PATIENCE) as session:
                return self._lone.nodes(session)
        found = []
        for listed in unite(self._lookup.collect("/nodes", parse_listing, self._deadline)):
            node = usable_node(listed.node, self._config)
            if node:
                http = http_address(node, self._config)
                found.append(listed._replace(node=node._replace(http=http)))
        return found

    def stats(self, topic: str | None, channel: str | None) -> Stats:
        """What every nsqd says, those that say nothing by name."""
        narrowed = (("topic", topic), ("channel", channel))
        query = (*_STATS_QUERY, *((name, value) for name, value in narrowed if value))
        entries: list[TopicStats] = []
        unreachable = []
        nodes = self.nodes()
        with self._http(_STATS_PATIENCE) as http:
            for position, listed in enumerate(nodes, 1):
                nsqd = str(listed.node.address)
                try:
                    others = len(nodes) - position
                    status, body = http.get(listed.node.http, "/stats", query, others)
                    entries += parse_stats(status, body, nsqd)
                except DiscoveryError as error:
                    unreachable.append(Unreachable(nsqd, str(error)))
        return Stats(choose(entries, topic, channel), tuple(unreachable))

    def replicas(self, topic: str) -> list[Replicas]:
        """The replicas of every partition, as its leader counts them; [] on an original cluster."""
        topology = self.topology(topic)
        if topology.state is TopicState.UNKNOWN:
            raise unknown(topic)
        wanted, found = topology.meta.replicas, []
        with self._http(_STATS_PATIENCE) as http:
            for number in range(topology.partition_num):
                leader = topology.leaders.get(number)
                name = str(leader.address) if leader else ""
                count = self._count_in_sync(http, leader, topic, number) if leader else None
                found.append(Replicas(number, name, wanted, count))
        return found

    def _count_in_sync(self, http: AdminHttp, leader: Node, topic: str, number: int) -> int | None:
        query = (("topic", topic), ("partition", str(number)))
        server = http_address(leader, self._config)
        try:
            return parse_in_sync(*http.get(server, "/coordinator/stats", query), topic, number)
        except DiscoveryError:
            return None

    # ------------------------------------------------------------------- an original cluster

    def at_nsqds(self, operation: Operation, nodes: Sequence[Listed], topic: str) -> list[Answer]:
        """The answers of *nodes*.

        It takes all of them: the lookups learn a moment later which ones have the topic.
        """
        answers = []
        with self._http() as http:
            for node, _, topics in nodes:
                answer = self._post(http, node.http, operation, str(node.address))
                answers.append(answer._replace(expected=topic in topics))
        return answers

    def at_lookups(self, operation: Operation) -> list[Answer]:
        """The answers of all lookups."""
        if self._lone is not None:
            return []
        with self._http() as http:
            return [
                self._post(http, address, operation, f"nsqlookupd {address}")
                for address in self._lookup.addresses
            ]

    # ----------------------------------------------------------------- a redesigned cluster

    def at_leading_lookup(self, operation: Operation) -> Answer:
        """The answer of the lookup that leads by now, once one decides.

        Raises AdminError when none does in time.
        """
        silent: set[str] = set()
        before: list[Answer] = []
        while True:
            asked = self._ask_lookups(operation)
            last = asked[-1]
            if last.verdict not in _UNDECIDED:
                if last.verdict is Verdict.NO_TOPIC and operation.deletes and last.node in silent:
                    # It has deleted it, and did not come to say so.
                    return last._replace(verdict=Verdict.DONE)
                return last
            silent |= {each.node for each in asked if each.verdict is Verdict.UNREACHABLE}
            before = _remember(before, asked)
            if not self._look_again():
                conclude(operation, before)

    def _ask_lookups(self, operation: Operation) -> list[Answer]:
        """One after another, up to the one that decides."""
        answers: list[Answer] = []
        with self._http() as http:
            for address in self._lookup.addresses:
                answers.append(self._post(http, address, operation, f"nsqlookupd {address}"))
                if answers[-1].verdict not in _UNDECIDED:
                    break
        return answers

    def at_leaders(self, operation: Operation, topology: Topology, only: int | None = None) -> None:
        """Let the leader of each partition do it, or that of partition *only*.

        Leaders that are missing, moving or gone are waited for, unless another one has refused.
        """
        settled: dict[Place, Answer] = {}
        waiting: list[Answer] = []
        while True:
            if topology.state is TopicState.UNKNOWN:
                raise unknown(topology.topic)
            waiting = _remember(waiting, self._ask_leaders(operation, topology, only, settled))
            refused_for_good = failure(operation, tuple(settled.values()))
            if not waiting or refused_for_good or monotonic() >= self._deadline:
                conclude(operation, [*settled.values(), *waiting])
                return
            wrong = {(answer.partition, answer.node) for answer in waiting}
            refused = [
                Refused(target.partition, target.address)
                for target in topology.targets
                if (target.partition, target.name) in wrong
            ]
            topology = self.topology(topology.topic, topology.generation, refused)

    def _ask_leaders(
        self,
        operation: Operation,
        topology: Topology,
        only: int | None,
        settled: dict[Place, Answer],
    ) -> list[Answer]:
        """Ask the servers that are not *settled*; returns the answers that may change soon."""
        waiting = []
        with self._http() as http:
            for place, target in _places(topology, only).items():
                if place in settled:
                    continue
                answer = self._ask_target(http, operation, place, target)
                if answer.verdict in _UNDECIDED:
                    waiting.append(answer)
                else:
                    settled[place] = answer
        return waiting

    def _ask_target(
        self, http: AdminHttp, operation: Operation, place: Place, target: Target | None
    ) -> Answer:
        partition = place if isinstance(place, int) else None
        if target is None:
            return Answer("", Verdict.AGAIN, "it has no leader", partition)
        server = http_address(target.node, self._config)
        answer = self._post(http, server, operation.at(partition), target.name)
        return answer._replace(partition=partition)

    # -------------------------------------------------------------------------------- requests

    def _http(self, patience: float = _PATIENCE) -> AdminHttp:
        return AdminHttp(self._config.response_timeout or patience, self._deadline)

    def _post(self, http: AdminHttp, server: Address, operation: Operation, name: str) -> Answer:
        try:
            verdict, text = judge(
                *http.post(server, operation.path, operation.query, operation.body)
            )
        except DiscoveryError as error:
            return Answer(name, Verdict.UNREACHABLE, str(error))
        return Answer(name, verdict, text)

    def _look_again(self) -> bool:
        """Learn which lookup leads, after a pause; returns whether there is time left then."""
        sleep(max(0.0, min(self._config.max_retry_pause, self._deadline - monotonic())))
        # Where it cannot be learned those that are known are asked again.
        with suppress(DiscoveryError):
            self.survey()
        return monotonic() < self._deadline


def conclude(operation: Operation, answers: Iterable[Answer]) -> None:
    """Raise an AdminError that names every server, unless it is done everywhere."""
    error = failure(operation, tuple(answers))
    if error:
        raise error


def unknown(topic: str) -> TopicNotExist:
    """The error for a topic that no server has."""
    return TopicNotExist(f"there is no topic {topic!r}", hint="check its name, or create it")


def _remember(before: Iterable[Answer], answers: Iterable[Answer]) -> list[Answer]:
    """*answers*, but what a server that is silent now has said *before*: that tells more."""
    known = {(answer.partition, answer.node): answer for answer in before}
    return [
        known.get((answer.partition, answer.node), answer)
        if answer.verdict is Verdict.UNREACHABLE
        else answer
        for answer in answers
    ]


def _places(topology: Topology, only: int | None) -> dict[Place, Target | None]:
    """The partitions, or original nsqds, of an operation; each with its leader, or None."""
    numbers = range(topology.partition_num) if only is None else [only]
    places: dict[Place, Target | None] = dict.fromkeys(numbers)
    for target in topology.targets:
        place = target.address if target.partition is None else target.partition
        if only in (None, place):
            places[place] = target
    return places
