"""Consuming, ordered and not, while leaders move and nodes are lost (protocol#new-leader).

Every row prints what came of it (``pytest -s``). Of what was acknowledged nothing is lost on
channels that have had a first FIN, and on ordered topics order holds and no message is ever in two
handlers at once. The embedded cluster plays the rows in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any

import pytest

from nsqsmart.embedded import Cluster
from tests import sites
from tests.integration.flowing import Flow, Outcome
from tests.integration.switching import ROWS, Row, Stage, leader_moves
from tests.sites import EmbeddedSite, Led, real_site

PARTITIONS = 2
_rows = count(1)


@dataclass(frozen=True)
class Scene(Stage):
    """Where a row is played, with an ordered and a plain topic."""

    site: Led
    flows: dict[bool, Flow]
    replicas: int
    before: int
    """Messages handled in every partition between two events."""

    @property
    def topic(self) -> str:
        return self.flows[True].topic

    def goes_on(self) -> None:
        for flow in self.flows.values():
            goal = {p: flow.finished(p) + self.before for p in flow.partitions}
            self.until(
                lambda flow=flow, goal=goal: all(flow.finished(p) >= n for p, n in goal.items()),
                f"{flow.topic} goes on",
            )

    def is_whole(self) -> bool:
        full = dict.fromkeys(range(PARTITIONS), self.replicas)
        return all(self.site.in_sync(flow.topic) == full for flow in self.flows.values())

    def lose(self, node: str, end: Callable[[str], None], back: Callable[[str], None]) -> None:
        """Take *node* away until no call waits for it any more, and give it back."""
        ordered = self.flows[True]
        topology = ordered.consumer._runtime.supervisor.topology
        leads = self.leader() == node
        address = topology.leaders[0].address if leads else None
        gone = ordered.on(address)
        end(node)
        try:
            self.until(lambda: not self.is_whole(), "the loss is noticed")
            if self.replicas > 2:
                self.goes_on()
            elif leads and self.site.slow:
                # Without a majority nothing is written; what was can be read, off and on.
                self.until(lambda: ordered.is_elsewhere(gone), "another one leads")
        finally:
            back(node)
        self.until(self.is_whole, "it is back")


def play(
    site: Led,
    topics: dict[bool, str],
    replicas: int,
    row: Row,
    before: int,
    pace: float,
    **options: Any,
) -> list[Outcome]:
    """Let messages flow, play *row* in the middle, and judge."""
    mark = f"{row.__name__}-{next(_rows)}"
    flows = {
        ordered: Flow(site.url, topic, PARTITIONS, mark, pace, options)
        for ordered, topic in topics.items()
    }
    scene = Scene(site, flows, replicas, before)
    try:
        scene.until(scene.is_whole, "all nodes are in sync")
        # The first FIN of each partition, and more.
        scene.goes_on()
        since = monotonic()
        row(scene)
        scene.goes_on()
        for flow in flows.values():
            flow.end_publishing()
            scene.until(lambda flow=flow: not flow.lost(), f"all of {flow.topic} is handled")
    finally:
        for flow in flows.values():
            flow.end_publishing()
            flow.consumer.close()
    outcomes = [flow.row(ordered, since) for ordered, flow in flows.items()]
    where = "real" if site.slow else "embedded"
    for outcome in outcomes:
        print(f"\n{where} | {replicas} replicas | {row.__name__:19} | {outcome}")  # noqa: T201 - it is a table
    return outcomes


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("row", ROWS)
def test_an_embedded_cluster(row, replicas):
    with Cluster(
        nsqds=3,
        lookupds=2,
        election_delay=0.4,
        replication_timeout=0.3,
        move_delay=0.1,
        redeliver_at_move=True,
        ordered_copies=1,
        positions_lost=20,
        young_channels_lost=True,
        log=False,
    ) as cluster:
        site = EmbeddedSite(cluster)
        topics = {True: "ordered", False: "plain"}
        for ordered, topic in topics.items():
            site.make_topic(topic, partitions=PARTITIONS, replicas=replicas, ordered=ordered)
        options = {
            "response_timeout": 1.4,
            "lookupd_min_refresh_interval": 0.05,
            "lookupd_poll_interval": 0.5,
            "retry_pause": 0.005,
            "max_retry_pause": 0.05,
        }
        outcomes = play(site, topics, replicas, row, 10, 0.006, **options)
    for outcome in outcomes:
        outcome.check()


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Iterator[tuple[Led, dict[int, dict[bool, str]]]]:
    with real_site("redesigned", tmp_path_factory.mktemp("redesigned")) as site:
        topics: dict[int, dict[bool, str]] = {}
        for replicas in (2, 3):
            topics[replicas] = {}
            for ordered in (True, False):
                name = f"flow{replicas}{'o' if ordered else 'p'}"
                site.make_topic(name, partitions=PARTITIONS, replicas=replicas, ordered=ordered)
                topics[replicas][ordered] = name
        yield site, topics


@pytest.mark.real
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("row", ROWS)
def test_a_real_cluster(real, row, replicas):
    site, topics = real
    if row is leader_moves:
        sites.wait_for(site.is_stable, "a leader may be moved")
    outcomes = play(site, topics[replicas], replicas, row, 100, 0.01)
    for outcome in outcomes:
        outcome.check()
