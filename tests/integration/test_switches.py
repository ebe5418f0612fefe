"""Publishing under load while leaders move and nodes are lost (protocol#leader-switch).

Every row prints what came of it (``pytest -s``). On a real cluster a partition may be without a
success only a second longer than for a bare probe, and for a hung leader ``response_timeout``
longer; the embedded one plays the same rows in milliseconds, and is not timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster
from tests import sites
from tests.integration.load import Load
from tests.integration.probe import Plan
from tests.integration.switching import ROWS, Row, Stage, leader_hangs, leader_moves
from tests.integration.verdicts import Collector, Verdict, judge
from tests.sites import CHANNEL, EmbeddedSite, Led, real_site

PARTITIONS, REPLICAS = 2, 3
_rows = count(1)


@dataclass(frozen=True)
class Scene(Stage):
    """Where a row is played."""

    site: Led
    topic: str
    load: Load
    before: int
    """Messages of every stream in every partition between two events."""

    def goes_on(self) -> None:
        """Every stream stores so many more messages in every partition."""
        goal = [each + self.before for each in self.load.counts()]

        def there() -> bool:
            return all(a >= b for a, b in zip(self.load.counts(), goal, strict=True))

        self.until(there, "every stream goes on")

    def in_sync(self, nodes: int) -> None:
        """So many nodes have what is stored, and there are leaders."""
        found = dict.fromkeys(range(PARTITIONS), nodes)
        self.until(lambda: self.site.in_sync(self.topic) == found, f"{nodes} nodes are in sync")

    def happens(self, what: str) -> None:
        self.load.event(what)

    def lose(self, node: str, end: Callable[[str], None], back: Callable[[str], None]) -> None:
        """Take *node* away until no call waits for it any more, and give it back."""
        self.happens("loss")
        end(node)
        try:
            self.in_sync(REPLICAS - 1)
            self.goes_on()
        finally:
            self.happens("return")
            back(node)
        self.in_sync(REPLICAS)


def play(site: Led, row: Row, plan: Plan, before: int) -> Verdict:
    """Publish and consume, play *row* in the middle, and judge."""
    collector = Collector(plan.mark)
    options = {"address": site.url, "positions": True, "workers": 1}
    with nsqsmart.Consumer(plan.topic, CHANNEL, collector, **options):
        load = Load(plan)
        scene = Scene(site, plan.topic, load, before)
        try:
            scene.in_sync(REPLICAS)
            scene.goes_on()
            row(scene)
            scene.goes_on()
        finally:
            load.stop()
        # What does not come is for the verdict.
        with suppress(AssertionError):
            scene.until(lambda: load.stored() <= collector.bodies, "all is consumed")
    verdict = judge(row.__name__, load, collector)
    print(f"\n{'real' if site.slow else 'embedded'} | {verdict}")  # noqa: T201 - it is a table
    return verdict


@pytest.mark.parametrize("row", ROWS)
def test_an_embedded_cluster(row):
    with Cluster(
        nsqds=3,
        lookupds=2,
        election_delay=1.6,
        replication_timeout=0.6,
        move_delay=0.1,
        log=False,
    ) as cluster:
        site = EmbeddedSite(cluster)
        site.make_topic("t", partitions=PARTITIONS, replicas=REPLICAS, ordered=False)
        options = {
            "response_timeout": 1.4,
            "lookupd_min_refresh_interval": 0.05,
            "retry_pause": 0.005,
            "max_retry_pause": 0.05,
        }
        plan = Plan(site.url, "t", PARTITIONS, "row", pace=0.006, options=options)
        verdict = play(site, row, plan, before=10)
    verdict.check(patience=None)


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Iterator[tuple[Led, str]]:
    with real_site("redesigned", tmp_path_factory.mktemp("redesigned")) as site:
        site.make_topic("switches", partitions=PARTITIONS, replicas=REPLICAS, ordered=False)
        yield site, "switches"


@pytest.mark.real
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("row", ROWS)
def test_a_real_cluster(real, row):
    site, topic = real
    if row is leader_moves:
        sites.wait_for(site.is_stable, "a leader may be moved")
    mark = f"row{next(_rows)}"
    plan = Plan(site.url, topic, PARTITIONS, mark, pace=0.005, options={})
    verdict = play(site, row, plan, before=300)
    verdict.check(patience=1.0, hung=20.0 if row is leader_hangs else 0.0)
