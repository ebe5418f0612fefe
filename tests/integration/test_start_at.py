"""``start_at``: a channel is set to a place before its first message, once in each partition."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster
from nsqsmart.errors import ConfigError, SubscribeError
from tests.helpers import eventually
from tests.integration.consuming import Handled, numbered, publish
from tests.peers import Peer, Talk, http_answer, message_frame, subscribed
from tests.sites import Site, Start, running_sites, sites

pytestmark = pytest.mark.timeout(300)
_numbers = count(1)
COUNT = 12


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> Iterator[Start]:
    with running_sites(tmp_path_factory.mktemp) as find:
        yield find


class Stored:
    """A topic of two partitions, a fresh channel, and where its messages are."""

    def __init__(self, site: Site, topic: str) -> None:
        self.site, self.topic = site, topic
        self.channel = f"from{next(_numbers)}"
        self.admin = nsqsmart.Admin(site.url)
        self.admin.create_channel(topic, self.channel)
        self.offsets: dict[int, list[int]] = defaultdict(list)
        self.mark = self.channel.encode()
        self.publish(b"a", COUNT)

    def publish(self, letter: bytes, number: int) -> None:
        with nsqsmart.Producer(self.site.url, trace=True) as producer:
            for body in numbered(number, self.mark + letter):
                for partition in (0, 1):
                    receipt = producer.publish(self.topic, body, partition=partition, timeout=60)
                    self.offsets[partition].append(receipt.offset)

    def consume(self, **options) -> list[nsqsmart.Message]:
        """What a consumer gets, until the newest message of both partitions is there."""
        handled = Handled()
        options = {"address": self.site.url, "workers": 1, **options}
        with nsqsmart.Consumer(self.topic, self.channel, handled, **options) as consumer:
            self.publish(b"z", 1)
            last = {(number, places[-1]) for number, places in self.offsets.items()}

            def there() -> bool:
                return last <= {(each.partition, each.offset) for each in list(handled.messages)}

            eventually(there, timeout=30)
            assert consumer.stats().requeued == 0
        return handled.messages


@pytest.fixture(scope="module", params=sites("redesigned"))
def stored_topics(request, start) -> tuple[Site, dict[bool, str]]:
    site = start(request.param)
    topics = {}
    for ordered in (False, True):
        topics[ordered] = f"start{next(_numbers)}"
        site.make_topic(topics[ordered], partitions=2, replicas=1, ordered=ordered)
    return site, topics


@pytest.fixture(params=[False, True], ids=["unordered", "ordered"])
def stored(request, stored_topics) -> Stored:
    site, topics = stored_topics
    return Stored(site, topics[request.param])


def by_partition(messages: list[nsqsmart.Message]) -> dict[int, list[int]]:
    found = defaultdict(list)
    for message in messages:
        # The first one behind a SUB_ORDERED may come twice.
        if message.offset not in found[message.partition]:
            found[message.partition].append(message.offset)
    return found


def test_from_the_head(stored):
    # Half of it is finished already.
    for partition in (0, 1):
        stored.admin.set_offset(
            stored.topic, stored.channel, partition, stored.offsets[partition][COUNT // 2]
        )
    found = by_partition(stored.consume(start_at="head"))
    for partition, offsets in stored.offsets.items():
        assert found[partition][-len(offsets) :] == offsets
        assert found[partition][0] == 0 if stored.site.slow is False else True


def test_from_the_tail(stored):
    found = by_partition(stored.consume(start_at="tail"))
    assert found == {partition: offsets[-1:] for partition, offsets in stored.offsets.items()}


def test_from_an_offset(stored):
    wanted = stored.offsets[0][5]
    found = by_partition(stored.consume(start_at=wanted))
    for partition, offsets in stored.offsets.items():
        assert found[partition] == [offset for offset in offsets if offset >= wanted]


def test_from_a_time(stored):
    before = stored.consume(positions=True)
    times = {message.body: message.timestamp for message in before}
    since = max(times.values()) // 1_000_000_000 + 1
    eventually(lambda: datetime.now(UTC).timestamp() > since + 0.01, timeout=5)
    stored.publish(b"b", 3)
    moment = datetime.fromtimestamp(since, UTC)
    found = by_partition(stored.consume(start_at=moment))
    assert found == {partition: offsets[-4:] for partition, offsets in stored.offsets.items()}


def test_a_pull_subscription_as_well(stored):
    wanted = stored.offsets[1][5]
    place = {"partition": 1, "start_at": wanted, "max_in_flight": 100}
    found = []
    with nsqsmart.PullSubscription(
        stored.site.url, stored.topic, stored.channel, **place
    ) as source:
        while len(found) < COUNT - 5 and (messages := source.pull(100, timeout=10)):
            found += messages
            source.finish(messages)
        assert source.drain().refused == ()
    assert [message.offset for message in found] == stored.offsets[1][5:]


# ------------------------------------------------------------------------------ embedded alone


@pytest.fixture
def cluster():
    with Cluster(nsqds=3, lookupds=1, election_delay=0.1) as made:
        made.create_topic("t", partitions=1, replicas=3)
        made.create_channel("t", "c")
        yield made


def test_it_counts_for_the_first_connection_alone(cluster):
    publish(cluster, *numbered(20), partition=0)
    handled = Handled()
    with nsqsmart.Consumer("t", "c", handled, address=cluster.url, start_at="head") as consumer:
        eventually(lambda: consumer.stats().finished == 20)
        cluster.move_leader("t", 0)
        publish(cluster, b"new", partition=0)
        eventually(lambda: b"new" in handled.bodies())
    assert handled.bodies() == [*numbered(20), b"new"]


def test_it_means_nothing_to_an_original_nsqd():
    with Cluster(dialect="original") as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        options = {"address": cluster.url, "start_at": "head"}
        with pytest.raises(SubscribeError, match="start_at needs a redesigned nsqd"):
            nsqsmart.Consumer("t", "c", print, **options).start()
        assert not cluster.log.of("SUB")
        with pytest.raises(Exception, match="start_at needs a redesigned nsqd"):
            nsqsmart.PullSubscription(cluster.url, "t", "c", start_at="head").open()


@pytest.mark.parametrize("position", ["begin", -1, True, 1.5, datetime(2024, 1, 1)])  # noqa: DTZ001
def test_what_is_no_place(position):
    with pytest.raises((ConfigError, TypeError)):
        nsqsmart.Consumer("t", "c", print, address="nsq://localhost", start_at=position)


class Nsqd:
    """A redesigned nsqd that does as told: its TCP and its HTTP side."""

    def __init__(self, *messages: bytes) -> None:
        self.lines: list[bytes] = []
        self.posts: list[tuple[str, bytes]] = []
        self.refusals: list[tuple[int, str]] = []
        self.tcp = Peer(subscribed(self.lines.append, *messages))
        self.http = Peer(self._answer)

    def _answer(self, talk: Talk) -> None:
        method, path, _ = talk.line().decode().split()
        size = 0
        while line := talk.line().strip().lower():
            if line.startswith(b"content-length:"):
                size = int(line.partition(b":")[2])
        if method == "POST":
            self.posts.append((path.partition("?")[0], talk.read(size)))
            status, text = self.refusals.pop(0) if self.refusals else (200, "")
            talk.send(http_answer(status, json.dumps({"message": text}).encode() if text else b""))
            return
        channel = {"channel_name": "c", "depth": 1, "depth_size": 30, "client_num": 1}
        topic = {"topic_partition": "0", "depth": 300, "backend_start": 0, "channels": [channel]}
        talk.send(http_answer(200, json.dumps({"topics": [topic]}).encode()))


def detailed(offset: int) -> bytes:
    body = offset.to_bytes(8, "big") + (30).to_bytes(4, "big") + b"%d" % offset
    return message_frame((offset + 1) << 64, body)


@pytest.fixture
def nsqd():
    """Sends what it had read before, and then what is at offset 60."""
    made = Nsqd(*(detailed(offset) for offset in (0, 30, 60, 90)))
    with made.tcp, made.http:
        yield made


@pytest.fixture
def lookup(nsqd):
    def answer(talk: Talk) -> None:
        path = talk.line().split()[1]
        while talk.line().strip():
            pass
        host, port = nsqd.tcp.address
        node = {"broadcast_address": host, "tcp_port": port, "http_port": nsqd.http.address[1]}
        found = {"meta": {"partition_num": 1}, "partitions": {"0": node}, "producers": []}
        talk.send(http_answer(200, json.dumps(found if b"/lookup?" in path else {}).encode()))

    with Peer(answer) as made:
        yield "nsq+lookupd://{}:{}".format(*made.address)


def test_stragglers_are_dropped_and_not_finished(nsqd, lookup):
    handled = Handled()
    with nsqsmart.Consumer("t", "c", handled, address=lookup, start_at=60) as consumer:
        eventually(lambda: consumer.stats().finished == 2)
        # They take no place among those in flight.
        (subscription,) = consumer._runtime.snapshot()
        eventually(lambda: subscription.in_flight == 0)
    assert handled.bodies() == [b"60", b"90"]
    assert nsqd.posts == [("/channel/setoffset", b"virtual_queue:60")]
    # Four tokens: with a fifth one the server looks at no partition.
    assert nsqd.lines[0] == b"SUB_ADVANCED t c 0"
    finished = [line for line in nsqd.lines if line.startswith(b"FIN")]
    assert len(finished) == 2


def test_while_the_leader_cannot_it_is_tried_again(nsqd, lookup):
    nsqd.refusals = [(400, "E_FAILED_ON_NOT_LEADER"), (400, "E_FAILED_ON_NOT_WRITABLE")]
    handled = Handled()
    options = {"address": lookup, "start_at": 60, "lookupd_min_refresh_interval": 0.01}
    with nsqsmart.Consumer("t", "c", handled, **options):
        eventually(lambda: handled.bodies() == [b"60", b"90"])
    assert [body for _, body in nsqd.posts] == [b"virtual_queue:60"] * 3


def test_what_the_server_refuses_for_good_is_raised(nsqd, lookup):
    nsqd.refusals = [(500, "Not supported while coordinator disabled")]
    with pytest.raises(SubscribeError, match="cannot be set to virtual_queue:60"):
        nsqsmart.Consumer("t", "c", print, address=lookup, start_at=60).start()
    assert not [line for line in nsqd.lines if line.startswith(b"RDY")]


def test_two_handlers_get_nothing_from_before_it_either(cluster):
    """However many workers: what is dropped is dropped before they see it."""
    publish(cluster, *numbered(50), partition=0)
    seen, lock = [], threading.Lock()

    def handle(message: nsqsmart.Message) -> None:
        with lock:
            seen.append(message.body)

    options = {"address": cluster.url, "start_at": "tail", "workers": 8}
    with nsqsmart.Consumer("t", "c", handle, **options):
        publish(cluster, b"new", partition=0)
        eventually(lambda: seen == [b"new"])
