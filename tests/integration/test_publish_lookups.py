"""Publishing where lookups are down, slow, lying or disagree, and where names hang."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import (
    ClientClosed,
    DiscoveryError,
    Outcome,
    PartitionUnavailable,
    PublishFailed,
    TopicNotExist,
)
from nsqsmart.net import resolving
from tests.helpers import eventually
from tests.integration.publishing import (
    answered_failure,
    bodies,
    check_free,
    failure,
    in_time,
    shared,
)
from tests.integration.test_bad_lookups import BAD, answers
from tests.peers import Peer, Script, Talk, http_answer, http_script, lookup_of

DIALECTS = pytest.mark.parametrize("dialect", ["original", "redesigned"])
COMMANDS = {"original": ["/lookup"], "redesigned": ["/lookup", "/listlookup"]}
POLLS = {"lookupd_poll_interval": 0.05, "lookupd_min_refresh_interval": 0.05}


def lookup_url(*peers: Peer) -> str:
    return "nsq+lookupd://" + ",".join("{}:{}".format(*peer.address) for peer in peers)


def make_stale(producer: nsqsmart.Producer) -> None:
    """The next call has to look up."""
    entry = shared(producer).directory._entries["t"]
    entry.stale_at = entry.asked_at = 0.0


def healthy(talk: Talk) -> None:
    talk.greet()
    while True:
        talk.publish()
        talk.ok()


@pytest.fixture
def cluster(dialect) -> Iterator[Cluster]:
    with Cluster(dialect=dialect, nsqds=2, lookupds=2) as made:
        if dialect == "original":
            made.create_topic("t")
        else:
            made.create_topic("t", replicas=2)
        made.create_channel("t", "c")
        yield made


# ------------------------------------------------------------------------------------------ down


@DIALECTS
def test_one_of_two_is_down(cluster):
    cluster.kill(cluster.lookupds[0])
    with nsqsmart.Producer(cluster.url, **POLLS) as producer:
        for number in range(5):
            with in_time(1):
                assert producer.publish("t", b"%d" % number, timeout=5).attempts == 1


@DIALECTS
def test_all_are_down_from_the_beginning(cluster):
    for lookupd in cluster.lookupds:
        cluster.kill(lookupd)
    with nsqsmart.Producer(cluster.url, lookupd_min_refresh_interval=0.1) as producer:
        error = failure(producer, timeout=0.8)
        assert error.outcome is Outcome.NOT_SENT
        assert all(each.name in str(error) for each in cluster.lookupds)
        # It pauses between two attempts.
        assert 1 < len(error.attempts) < 30
        cluster.restart(cluster.lookupds[0])
        with in_time(5):
            producer.publish("t", b"y", timeout=5)
    assert bodies(cluster) == {b"y": 1}


@DIALECTS
def test_all_are_down_later(cluster):
    """The last topology is used, and costs no waiting."""
    with nsqsmart.Producer(cluster.url, **POLLS) as producer:
        producer.publish("t", b"first")
        for lookupd in cluster.lookupds:
            cluster.kill(lookupd)

        def failing() -> bool:
            with in_time(0):
                assert producer.publish("t", b"x", timeout=5).attempts == 1
            return bool(shared(producer).directory.failing())

        eventually(failing)
        check_free(producer)


# ------------------------------------------------------------------------------------------ slow


@DIALECTS
def test_one_that_never_answers_takes_its_share_of_the_first_call_only(cluster, dialect):
    for command in COMMANDS[dialect]:
        stalled = faults.on(command, nsqd=cluster.lookupds[0], times=faults.ALWAYS).stall()
        cluster.faults.add(stalled)
    with nsqsmart.Producer(cluster.url) as producer:
        with in_time(2):
            assert producer.publish("t", b"x", timeout=2).attempts == 1
        with in_time(0):
            producer.publish("t", b"y", timeout=2)


@DIALECTS
@pytest.mark.parametrize("known", [True, False])
def test_none_ever_answers(cluster, dialect, known):
    with nsqsmart.Producer(cluster.url, lookupd_request_timeout=30, **POLLS) as producer:
        if known:
            producer.publish("t", b"first")
            make_stale(producer)
        for command in COMMANDS[dialect]:
            cluster.faults.add(faults.on(command, times=faults.ALWAYS).stall())
        asked = len(cluster.log.of("GET /lookup"))
        if known:
            with in_time(0):
                assert producer.publish("t", b"x", timeout=1).attempts == 1
            eventually(lambda: len(cluster.log.of("GET /lookup")) > asked)
        else:
            error = failure(producer, timeout=1)
            assert error.outcome is Outcome.NOT_SENT
            assert "no nsqlookupd answered" in str(error)


def test_others_do_not_wait_for_who_looks_up():
    """Not even the first one does: there is a topology, and no error has proved it wrong."""
    looking, answer = threading.Event(), threading.Event()

    with Peer(healthy) as nsqd:
        found = answers(nsqd.address)

        def slow(talk: Talk) -> None:
            looking.set()
            answer.wait(10)
            found(talk)

        with (
            Peer(found, found, slow) as lookup,
            nsqsmart.Producer(lookup_url(lookup)) as producer,
        ):
            producer.publish("t", b"x", timeout=5)
            make_stale(producer)
            seen = producer.stats()["topics"]["t"]["generation"]
            with in_time(0):
                producer.publish("t", b"x", timeout=5)
            assert looking.wait(5)
            for _ in range(3):
                with in_time(0):
                    producer.publish("t", b"x", timeout=5)
            answer.set()
            eventually(lambda: producer.stats()["topics"]["t"]["generation"] > seen)


# ----------------------------------------------------------------------------------------- lying


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_what_is_no_answer_fails_in_time_and_nothing_is_sent(bad):
    options = {"lookupd_request_timeout": 30}
    with Peer(bad) as lookup, nsqsmart.Producer(lookup_url(lookup), **options) as producer:
        error = failure(producer, timeout=1)
    assert error.outcome is Outcome.NOT_SENT
    assert isinstance(error.__cause__, DiscoveryError)


def producers(*addresses: tuple[str, int]) -> Script:
    """An original lookup that lists these."""
    listed = [
        {"broadcast_address": host, "tcp_port": port, "http_port": 1} for host, port in addresses
    ]
    found = json.dumps({"channels": [], "producers": listed}).encode()
    nothing = http_answer(404, b'{"message":"NOT_FOUND"}')
    return http_script(
        lambda path: http_answer(200, found) if path.startswith("/lookup?") else nothing
    )


NO_NSQD = ("127.0.0.1", 1)


def test_an_unkeyed_message_passes_by_nsqds_that_are_not_there():
    with (
        Peer(healthy) as nsqd,
        Peer(lambda talk: talk.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as web,
        Peer(producers(NO_NSQD, web.address, nsqd.address, ("0.0.0.0", 4150))) as lookup,
        nsqsmart.Producer(lookup_url(lookup)) as producer,
    ):
        for number in range(10):
            with in_time(1):
                receipt = producer.publish("t", b"%d" % number, timeout=5)
            assert receipt.nsqd == "{}:{}".format(*nsqd.address)
        check_free(producer)


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("leaders", [{0: NO_NSQD}, {}], ids=["unreachable", "none"])
def test_a_leader_that_is_not_there(leaders, key):
    with (
        Peer(lookup_of(leaders, count=1)) as lookup,
        nsqsmart.Producer(lookup_url(lookup), lookupd_min_refresh_interval=0.1) as producer,
    ):
        error = failure(producer, timeout=0.8, key=key)
        assert error.outcome is Outcome.NOT_SENT
        assert len(error.attempts) < 30
        assert leaders or isinstance(error, PartitionUnavailable)
        # It was told the truth at last.
        with Peer(healthy) as nsqd:
            leaders[0] = nsqd.address
            with in_time(5):
                producer.publish("t", b"x", timeout=5, key=key)
            check_free(producer)


@pytest.mark.parametrize("key", [None, "k"])
def test_a_leader_that_does_not_lead_is_refused_until_the_deadline(key):
    with Cluster(nsqds=2, lookupds=1) as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        other = next(each for each in cluster.nsqds if each is not cluster.leader("t", 0))
        with (
            Peer(lookup_of({0: other.tcp_address})) as lookup,
            nsqsmart.Producer(lookup_url(lookup), lookupd_min_refresh_interval=0.1) as producer,
        ):
            error = answered_failure(producer, key=key)
            assert error.outcome is Outcome.REJECTED
            assert 1 < len(error.attempts) < 40
        assert bodies(cluster) == {}


# ------------------------------------------------------------------------------------- disagreeing


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("frozen", [0, 1])
@pytest.mark.parametrize("dialect", ["redesigned"])
def test_one_has_not_heard_that_the_leader_moved(cluster, frozen, key):
    with nsqsmart.Producer(cluster.url, lookupd_min_refresh_interval=0.1) as producer:
        producer.publish("t", b"before", key=key)
        cluster.freeze(cluster.lookupds[frozen])
        leader = cluster.move_leader("t", 0)
        for number in range(5):
            with in_time(3):
                receipt = producer.publish("t", b"%d" % number, timeout=5, key=key)
            assert receipt.nsqd == leader.name
        check_free(producer)
    assert set(bodies(cluster).values()) == {1}


def test_each_knows_another_nsqd():
    with (
        Peer(healthy) as first,
        Peer(healthy) as second,
        Peer(producers(first.address)) as one,
        Peer(producers(second.address)) as other,
        nsqsmart.Producer(lookup_url(one, other)) as producer,
    ):
        receipts = [producer.publish("t", b"x", timeout=5) for _ in range(4)]
        assert len({receipt.nsqd for receipt in receipts}) == 2


# ------------------------------------------------------------------------------------------- names


@pytest.fixture
def hanging(monkeypatch) -> Iterator[list[str]]:
    """No name is resolved; gives those that were asked for."""
    real, asked, over = socket.getaddrinfo, [], threading.Event()

    def hang(host: str, port: int, **arguments: int) -> object:
        if arguments["flags"] & socket.AI_NUMERICHOST:
            return real(host, port, **arguments)
        asked.append(host)
        over.wait(20)
        raise OSError("no such name")

    monkeypatch.setattr(resolving.socket, "getaddrinfo", hang)
    yield asked
    over.set()


@pytest.mark.parametrize("url", ["nsq://hangs.test:4150", "nsq+lookupd://hangs.test:4161"])
def test_a_name_hangs(hanging, url):
    with nsqsmart.Producer(url) as producer:
        for _ in range(2):
            error = failure(producer, timeout=0.5)
            assert error.outcome is Outcome.NOT_SENT
            assert "hangs.test" in str(error)
    # One thread is in it, however many wait.
    assert hanging == ["hangs.test"]


@pytest.mark.parametrize("url", ["nsq://hangs.test:4150", "nsq+lookupd://hangs.test:4161"])
def test_a_producer_is_closed_while_a_name_hangs(hanging, url):
    producer = nsqsmart.Producer(url, dial_timeout=40, lookupd_request_timeout=40)
    failed: list[PublishFailed] = []

    def publish() -> None:
        with pytest.raises(PublishFailed) as caught:
            producer.publish("t", b"x", timeout=90)
        failed.append(caught.value)

    thread = threading.Thread(target=publish)
    thread.start()
    eventually(lambda: hanging)
    with in_time(0):
        producer.close(timeout=0)
        thread.join()
    assert failed[0].outcome is Outcome.NOT_SENT
    assert isinstance(failed[0].__cause__, ClientClosed)


def test_the_name_of_one_of_two_nsqds_hangs(hanging):
    with Peer(healthy) as nsqd:
        url = "nsq://hangs.test:4150,{}:{}".format(*nsqd.address)
        with nsqsmart.Producer(url, dial_timeout=0.3) as producer:
            for _ in range(4):
                with in_time(0.3):
                    producer.publish("t", b"x", timeout=5)
            check_free(producer)


def test_the_name_of_one_of_two_lookups_hangs(hanging):
    with Peer(healthy) as nsqd, Peer(answers(nsqd.address)) as lookup:
        url = "nsq+lookupd://hangs.test:4161,{}:{}".format(*lookup.address)
        with nsqsmart.Producer(url) as producer, in_time(2):
            assert producer.publish("t", b"x", timeout=2).attempts == 1


# ------------------------------------------------------------------------------------------ topics


@DIALECTS
def test_three_hundred_topics_share_one_question_for_further_lookups(dialect):
    with Cluster(dialect=dialect, lookupds=1) as cluster:
        topics = [f"topic-{number}" for number in range(300)]
        for topic in topics:
            cluster.create_topic(topic)
            cluster.create_channel(topic, "c")
        # However long it takes, nothing is asked for again because it is old.
        options = {"lookupd_poll_interval": 300, "listlookup_interval": 3600}
        options["lookupd_request_timeout"] = 30
        with nsqsmart.Producer(cluster.url, **options) as producer:
            for _ in range(2):
                for topic in topics:
                    producer.publish(topic, b"x", timeout=30)
            assert len(producer.stats()["topics"]) == 300
        assert len(cluster.log.of("GET /listlookup")) == 1
        assert len(cluster.log.of("GET /lookup")) == 300


@pytest.mark.parametrize("key", [None, "k"])
def test_a_misspelt_topic_fails_after_two_lookups_a_second_apart(key):
    with Cluster(lookupds=1) as cluster, nsqsmart.Producer(cluster.url) as producer:
        with in_time(2), pytest.raises(nsqsmart.errors.TopicNotExist) as caught:
            producer.publish("absent", b"x", key=key, timeout=30)
        assert caught.value.outcome is Outcome.NOT_SENT
        assert len(cluster.log.of("GET /lookup")) == 2
        check_free(producer)


# --------------------------------------------------------------------------------- forgetting


@pytest.mark.parametrize("body", [b'{"channels":[],"producers":[]}', b""], ids=["empty", "404"])
def test_a_lookup_that_forgot_is_not_believed_while_the_nsqd_answers(body):
    """One that was restarted knows nothing until the nsqds have registered again."""
    forgot = http_script(lambda _path: http_answer(200 if body else 404, body))
    with Peer(healthy) as nsqd:
        found = answers(nsqd.address)
        with (
            Peer(found, found, forgot) as lookup,
            nsqsmart.Producer(lookup_url(lookup), **POLLS) as producer,
        ):

            def publishes() -> bool:
                assert producer.publish("t", b"x", timeout=5).attempts == 1
                return lookup.accepted > 8

            eventually(publishes)
            assert producer.health().state == "ready"
            nsqd.__exit__()
            # No other error tells that it is gone.
            error = failure(producer, timeout=2)
            assert isinstance(error, TopicNotExist)


def test_a_topic_that_a_publish_has_made_outlives_a_lookup_that_forgot():
    """Its nsqd had not been looked up yet when the only lookup began anew, without any nsqd."""
    nodes = [True]
    with Peer(healthy) as nsqd:
        one = {"broadcast_address": nsqd.address[0], "tcp_port": nsqd.address[1], "http_port": 1}

        def answer(path: str) -> bytes:
            if path.startswith("/nodes"):
                listed = [one | {"topics": [], "tombstones": []}] if nodes[0] else []
                return http_answer(200, json.dumps({"producers": listed}).encode())
            return http_answer(404, b'{"message":"TOPIC_NOT_FOUND"}')

        with (
            Peer(http_script(answer)) as lookup,
            nsqsmart.Producer(lookup_url(lookup), **POLLS) as producer,
        ):
            assert producer.publish("t", b"x", timeout=5).attempts == 1
            nodes[0] = False
            for _ in range(5):
                assert producer.publish("t", b"x", timeout=5).attempts == 1


# -------------------------------------------------------------------------------- moved leaders


@pytest.mark.parametrize("dialect", ["redesigned"])
@pytest.mark.parametrize("options", [{}, {"key": "k"}], ids=["plain", "keyed"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_call_that_a_moved_leader_ends_has_the_next_one_look_up(cluster, options, asynchronous):
    def publish(producer: nsqsmart.Producer, body: bytes) -> nsqsmart.Receipt:
        if asynchronous:
            return producer.publish_async("t", body, timeout=5, **options).result()
        return producer.publish("t", body, timeout=5, **options)

    with nsqsmart.Producer(cluster.url, publish_attempts=1) as producer:
        publish(producer, b"before")
        shared(producer).directory._entries["t"].asked_at -= 60
        leader = cluster.move_leader("t", 0)
        with pytest.raises(PublishFailed, match="E_FAILED_ON_NOT_LEADER"):
            publish(producer, b"refused")
        assert publish(producer, b"after").nsqd == leader.name


# -------------------------------------------------------------------------------- wrong addresses


def test_where_a_topic_was_looked_for_and_what_to_do_is_said():
    with Cluster(lookupds=1) as cluster, nsqsmart.Producer(cluster.url) as producer:
        error = failure(producer, timeout=5)
    assert isinstance(error, TopicNotExist)
    assert str(cluster.lookupds[0].name) in str(error)
    assert "does not create topics" in error.hint
    with (
        Cluster(dialect="original", nsqds=0, lookupds=1) as cluster,
        nsqsmart.Producer(cluster.url) as producer,
    ):
        error = failure(producer, timeout=5)
    assert isinstance(error, TopicNotExist)
    assert "no nsqd has registered" in error.hint


def test_the_http_port_of_an_nsqd_is_no_lookup():
    with Cluster(dialect="original", nsqds=1, lookupds=1) as cluster:
        url = "nsq+lookupd://{}:{}".format(*cluster.nsqds[0].http_address)
        with nsqsmart.Producer(url) as producer:
            error = failure(producer, timeout=0.5)
    assert "HTTP port of an nsqd" in str(error)
    assert "4161" in error.hint


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_port_that_speaks_http_ends_a_call_at_once(asynchronous):
    def publish(producer: nsqsmart.Producer) -> nsqsmart.Receipt:
        if asynchronous:
            return producer.publish_async("t", b"x", timeout=60).result()
        return producer.publish("t", b"x", timeout=60)

    def web_server(talk: Talk) -> None:
        # What is closed may be a reset, which may overtake the answer.
        talk.line()
        talk.body()
        talk.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        talk.stall()

    with (
        Peer(web_server) as web,
        nsqsmart.Producer(web.url) as producer,
        in_time(1),
        pytest.raises(PublishFailed, match="speaks HTTP") as caught,
    ):
        publish(producer)
    assert len(caught.value.attempts) == 1
    assert "4150" in caught.value.hint
