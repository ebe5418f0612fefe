"""Connections that come, go, stall and break under a Consumer: it goes on, and loses nothing."""

from __future__ import annotations

import gc
import json
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic

import pytest

import nsqsmart
from nsqsmart.client.subscribing import supervisor as keeper_module
from nsqsmart.embedded import Cluster
from nsqsmart.wire.frames import ERROR, HEARTBEAT_FRAME, MESSAGE, RESPONSE, encode_frame
from tests.conftest import open_sockets, our_threads
from tests.helpers import SOAK, eventually
from tests.integration.consuming import Handled, all_finished, numbered, publish
from tests.peers import Peer, Talk, http_answer, http_script, lookup_of, message_frame, subscribed


def consume(url: str, handler, **options):
    quick = {"lookupd_poll_interval": 0.1, "lookupd_min_refresh_interval": 0.05}
    return nsqsmart.Consumer("t", "c", handler, address=url, **(quick | options))


def lookup_url(*peers: Peer) -> str:
    return "nsq+lookupd://" + ",".join("{}:{}".format(*peer.address) for peer in peers)


class Gate(Handled):
    """A handler that waits to be let through."""

    def __init__(self) -> None:
        super().__init__()
        self.entered: list[nsqsmart.Message] = []
        self.open = threading.Event()

    def __call__(self, message: nsqsmart.Message) -> None:
        self.entered.append(message)
        assert self.open.wait(30)
        super().__call__(message)


# ---------------------------------------------------------------------------------- what is listed


def producers(address: tuple[str, int]) -> bytes:
    """What an original lookup says of one nsqd."""
    one = {"broadcast_address": address[0], "tcp_port": address[1], "http_port": 1}
    return http_answer(200, json.dumps({"channels": ["c"], "producers": [one]}).encode())


def partitions(leaders: dict[int, tuple[str, int]], *, count: int = 1) -> bytes:
    """What a redesigned lookup says."""
    found = {
        str(number): {"broadcast_address": host, "tcp_port": port, "http_port": 1}
        for number, (host, port) in leaders.items()
    }
    meta = {"partition_num": count, "ordered": False}
    document = {"channels": ["c"], "meta": meta, "partitions": found, "producers": []}
    return http_answer(200, json.dumps(document).encode())


LIES = {
    "empty original": lambda _other: http_answer(200, b'{"channels":[],"producers":[]}'),
    "empty redesigned": lambda _other: partitions({}),
    "unknown": lambda _other: http_answer(404, b'{"message":"TOPIC_NOT_FOUND"}'),
    "garbage": lambda _other: http_answer(200, b"\xff\x00<html>"),
    "broken": lambda _other: http_answer(500, b"oops"),
    "stale original": producers,
}


@pytest.mark.parametrize("redesigned", [False, True])
@pytest.mark.parametrize("lie", LIES)
def test_no_connection_that_works_is_dropped_for_what_lookups_say(lie, redesigned):
    """No lookup lists the nsqd any more, for three rounds; it still has messages."""
    said: list[bytes] = []
    go_on = threading.Event()

    def speak(talk: Talk) -> None:
        go_on.wait(30)
        talk.send(message_frame(2, b"later"))
        talk.stall()

    asked = Counter()
    with (
        Peer(subscribed(said.append, message_frame(1), speak=speak)) as nsqd,
        Peer(lambda talk: talk.stall()) as other,
    ):
        truth = partitions({0: nsqd.address}) if redesigned else producers(nsqd.address)
        lies = threading.Event()

        def answer(path: str) -> bytes:
            if not path.startswith("/lookup?"):
                return http_answer(404, b"{}")
            asked[lies.is_set()] += 1
            return LIES[lie](other.address) if lies.is_set() else truth

        handled = Handled()
        with (
            Peer(http_script(answer)) as lookup,
            consume(lookup_url(lookup), handled, close_timeout=1),
        ):
            eventually(lambda: len(handled.messages) == 1)
            lies.set()
            eventually(lambda: asked[True] >= 4)
            go_on.set()
            eventually(lambda: handled.bodies() == [b"x", b"later"])
        assert nsqd.accepted == 1


def test_a_partition_that_is_added_is_subscribed_to():
    first, second = (subscribed(lambda line: None, message_frame(n, b"%d" % n)) for n in (1, 2))
    leaders: dict[int, tuple[str, int]] = {}
    handled = Handled()
    with Peer(first) as one, Peer(second) as two, Peer(lookup_of(leaders)) as lookup:
        leaders[0] = one.address
        with consume(lookup_url(lookup), handled):
            eventually(lambda: handled.bodies() == [b"1"])
            leaders[1] = two.address
            eventually(lambda: handled.bodies() == [b"1", b"2"])
        assert (one.accepted, two.accepted) == (1, 1)


def test_a_leader_that_moved_without_a_word_is_followed():
    """The lookup shows another one, and the connection to the old one still stands."""
    first, second = (subscribed(lambda line: None, message_frame(n, b"%d" % n)) for n in (1, 2))
    leaders: dict[int, tuple[str, int]] = {}
    handled = Handled()
    with Peer(first) as one, Peer(second) as two, Peer(lookup_of(leaders)) as lookup:
        leaders[0] = one.address
        with consume(lookup_url(lookup), handled) as consumer:
            eventually(lambda: handled.bodies() == [b"1"])
            leaders[0] = two.address
            eventually(lambda: handled.bodies() == [b"1", b"2"])
            assert len(consumer._runtime.snapshot()) == 1


def test_256_partitions_in_one_process():
    topics = ("a", "b")
    with Cluster(nsqds=2) as cluster, ExitStack() as stack:
        handled = Handled()
        consumers = []
        for topic in topics:
            cluster.create_topic(topic, partitions=128)
            cluster.create_channel(topic, "c")
            options = {"max_in_flight": 200, "lookupd_poll_interval": 60}
            one = nsqsmart.Consumer(topic, "c", handled, address=cluster.url, **options)
            consumers.append(stack.enter_context(one))
        producer = stack.enter_context(nsqsmart.Producer(cluster.url))

        def live() -> int:
            found = [each.live for one in consumers for each in one._runtime.snapshot()]
            return sum(found)

        eventually(lambda: live() == 256)
        for topic in topics:
            for number in range(128):
                producer.publish(topic, b"%d" % number, partition=number)
        eventually(lambda: len(handled.messages) == 256, timeout=30)
        places = {(message.topic, message.partition) for message in handled.messages}
        assert len(places) == 256
        assert [one.health().state for one in consumers] == ["ready", "ready"]


# ------------------------------------------------------------------------------- what stops working


def test_heartbeats_are_answered_while_every_worker_is_busy():
    beats = threading.Semaphore(0)
    said: list[bytes] = []

    def note(line: bytes) -> None:
        said.append(line)
        if line == b"NOP":
            beats.release()

    def speak(talk: Talk) -> None:
        for _ in range(3):
            talk.send(HEARTBEAT_FRAME)
            note(talk.line())

    def handler(_message: nsqsmart.Message) -> None:
        for _ in range(3):
            assert beats.acquire(timeout=10)

    with Peer(subscribed(note, message_frame(1), speak=speak)) as nsqd:
        with consume(nsqd.url, handler, workers=1) as consumer:
            eventually(lambda: consumer.stats().finished == 1)
        assert nsqd.accepted == 1
    assert said.count(b"NOP") >= 3


def test_a_peer_that_falls_silent_is_dialled_again():
    """Nothing ends its connection but that no heartbeat comes."""
    silent = subscribed(lambda line: None, message_frame(1, b"last"), speak=lambda t: t.stall())
    healthy = subscribed(lambda line: None, message_frame(2, b"again"))
    handled = Handled()
    with Peer(silent, healthy) as nsqd, consume(nsqd.url, handled, heartbeat_interval=1):
        eventually(lambda: handled.bodies() == [b"last", b"again"])


def test_a_server_that_stalls_is_left_for_the_next_leader():
    with Cluster(nsqds=3, replication_timeout=0.1) as cluster:
        cluster.create_topic("t", partitions=1, replicas=3)
        cluster.create_channel("t", "c")
        publish(cluster, b"before")
        handled = Handled()
        with consume(cluster.url, handled, heartbeat_interval=1):
            eventually(lambda: handled.bodies() == [b"before"])
            stalled = cluster.leader("t", 0)
            cluster.hang(stalled)
            try:
                publish(cluster, b"after")
                eventually(lambda: b"after" in handled.bodies(), timeout=20)
            finally:
                cluster.wake(stalled)
        assert handled.messages[-1].nsqd != stalled.name


def test_what_a_killed_nsqd_had_in_flight_comes_again():
    with Cluster(nsqds=3, replication_timeout=0.1) as cluster:
        cluster.create_topic("t", partitions=1, replicas=3)
        cluster.create_channel("t", "c")
        publish(cluster, *numbered(20))
        gate = Gate()
        with consume(cluster.url, gate, workers=2, rdy_mode="level") as consumer:
            (subscription,) = consumer._runtime.snapshot()
            eventually(lambda: subscription.in_flight == 20)
            cluster.kill(cluster.leader("t", 0))
            eventually(lambda: not subscription.live)
            gate.open.set()
            all_finished(cluster)
        assert set(gate.bodies()) == set(numbered(20))


@pytest.mark.parametrize("ordered", [False, True])
def test_a_leader_that_moves_while_the_inbox_is_full(ordered):
    with Cluster(nsqds=2) as cluster:
        cluster.create_topic("t", partitions=1, replicas=2, ordered=ordered)
        cluster.create_channel("t", "c")
        publish(cluster, *numbered(30), partition=0)
        gate = Gate()
        with consume(cluster.url, gate, workers=1, rdy_mode="level") as consumer:
            (old,) = consumer._runtime.snapshot()
            eventually(lambda: old.in_flight == (1 if ordered else 30))
            eventually(lambda: gate.entered)
            cluster.move_leader("t", 0)
            eventually(lambda: not old.live)
            gate.open.set()
            all_finished(cluster)
            assert not gate.entered[0].finished
            assert consumer._runtime.order_violations == 0
        assert set(gate.bodies()) == set(numbered(30))


def test_a_connection_that_is_reset_between_the_bytes_of_an_answer():
    """Whether the server took it or not: the message comes again, and is answered then."""
    answers: list[bytes] = []

    def script(talk: Talk) -> None:
        talk.greet()
        assert talk.line().startswith(b"SUB")
        talk.ok()
        while not talk.line().startswith(b"RDY"):
            pass
        talk.send(message_frame(7))
        talk.read(len(b"FIN 0123"))
        talk.reset()

    with Peer(script, subscribed(answers.append, message_frame(7))) as nsqd:
        handled = Handled()
        with consume(nsqd.url, handled) as consumer:
            eventually(lambda: len(handled.messages) == 2)
            eventually(lambda: answers.count(b"FIN " + (7).to_bytes(16, "big")) == 1)
            assert consumer.health().state == "ready"


def test_a_fin_that_came_too_late_is_counted_and_the_connection_stays():
    """The server's clock decides: what was in time here was not in time there."""

    def speak(talk: Talk) -> None:
        assert talk.line().startswith(b"FIN ")
        reason = b"E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight"
        talk.send(encode_frame(ERROR, reason) + message_frame(2, b"next"))

    handled = Handled()
    with Peer(subscribed(lambda line: None, message_frame(1), speak=speak)) as nsqd:
        with consume(nsqd.url, handled) as consumer:
            eventually(lambda: handled.bodies() == [b"x", b"next"])
            assert consumer._runtime.late_answers == 1
        assert nsqd.accepted == 1


@pytest.mark.parametrize("pulls", [False, True])
def test_a_flood_of_refusals_is_a_line_and_a_count(pulls, caplog):
    caplog.set_level("INFO", "nsqsmart")
    reason = b"E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight"

    def speak(talk: Talk) -> None:
        assert talk.line().startswith(b"FIN ")
        talk.send(encode_frame(ERROR, reason) * 500 + message_frame(2, b"next"))

    with Peer(subscribed(lambda line: None, message_frame(1), speak=speak)) as nsqd:
        if pulls:
            with nsqsmart.PullSubscription(nsqd.url, "t", "c") as source:
                for _ in range(2):
                    assert source.finish(source.pull(timeout=10)) == 1
                assert len(source.close().refused) == 500
        else:
            handled = Handled()
            with consume(nsqd.url, handled) as consumer:
                eventually(lambda: handled.bodies() == [b"x", b"next"])
                eventually(lambda: consumer._runtime.late_answers == 500)
    assert sum("E_FIN_FAILED" in each.getMessage() for each in caplog.records) == 1


def test_who_takes_every_sub_and_ends_it_is_dialled_ever_more_rarely(monkeypatch):
    """Or it is 12 connections a second, for as long as it goes on."""
    pauses: list[float] = []
    monkeypatch.setattr(
        keeper_module, "uniform", lambda low, high: pauses.append(high) or high / 100
    )

    def script(talk: Talk) -> None:
        talk.greet()
        assert talk.line().startswith(b"SUB")
        talk.ok()

    with Peer(script) as nsqd, consume(nsqd.url, Handled()):
        eventually(lambda: len(pauses) >= 6)
    assert pauses[:6] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]


def test_more_than_rdy_allows_is_handled_like_the_rest():
    """After a timeout a server counts the place free again (decisions#27)."""
    said: list[bytes] = []
    pushed = [message_frame(number, b"%d" % number) for number in range(60)]
    handled = Handled()
    with Peer(subscribed(said.append, *pushed)) as nsqd:
        with consume(nsqd.url, handled, max_in_flight=2, workers=2) as consumer:
            eventually(lambda: len(handled.messages) == 60)
            eventually(lambda: sum(line.startswith(b"FIN ") for line in said) == 60)
            assert not consumer.is_starved()
        rdys = [int(line[4:]) for line in said if line.startswith(b"RDY ")]
        assert max(rdys) <= 2
    assert handled.counts() == Counter(numbered(60))


GIANT = struct.pack(">II", 1 << 30, MESSAGE)
SHORT = encode_frame(MESSAGE, b"too short")


@pytest.mark.parametrize(("bad", "said"), [(GIANT, "max_frame_size"), (SHORT, "message")])
def test_what_cannot_be_read_ends_its_connection_and_no_other(bad, said):
    good = subscribed(lambda line: None, message_frame(1))
    spoiled = subscribed(lambda line: None, message_frame(2, b"first"), bad)
    handled = Handled()
    with Peer(good) as one, Peer(spoiled) as two:
        url = "nsq://{}:{},{}:{}".format(*one.address, *two.address)
        with consume(url, handled) as consumer:
            eventually(lambda: two.accepted >= 3)
            eventually(lambda: any(said in why for why in consumer.health().reasons))
        assert one.accepted == 1
    assert b"x" in handled.bodies()


@pytest.mark.parametrize(
    ("code", "is_right"),
    [
        ("E_SUB_ORDER_IS_MUST", lambda offer, line: line.startswith(b"SUB_ORDERED ")),
        ("E_SUB_EXTEND_NEED", lambda offer, line: offer.get("extend_support")),
    ],
)
def test_a_topic_that_is_not_what_the_lookup_says(code, is_right: Callable[[dict, bytes], bool]):
    """The server knows better; the consumer asks it once more, as it wants to be asked."""
    tried: list[bool] = []

    def script(talk: Talk) -> None:
        offer = talk.greet()
        tried.append(bool(is_right(offer, talk.line())))
        if not tried[-1]:
            talk.send(encode_frame(ERROR, code.encode()))
            return
        talk.ok()
        while talk.line() != b"CLS":
            pass
        talk.send(encode_frame(RESPONSE, b"CLOSE_WAIT"))

    with (
        Peer(script) as nsqd,
        Peer(lookup_of({0: nsqd.address})) as lookup,
        consume(lookup_url(lookup), print) as consumer,
    ):
        eventually(lambda: consumer.health().state == "ready")
    assert tried[0] is False
    assert tried[-1] is True
    assert tried.count(True) == 1


# -------------------------------------------------------------------------------------------- close


def silent_handshake(talk: Talk) -> None:
    talk.stall()


def silent_subscription(talk: Talk) -> None:
    talk.greet()
    talk.stall()


def refusing(talk: Talk) -> None:
    talk.reset()


@pytest.mark.parametrize("script", [silent_handshake, silent_subscription, refusing])
def test_close_waits_for_no_dial(script):
    options = {"dial_timeout": 30, "handshake_timeout": 30, "close_timeout": 30}
    with Peer(script) as nsqd:
        consumer = consume(nsqd.url, print, **options)
        starting = threading.Thread(target=consumer.start, daemon=True)
        starting.start()
        eventually(lambda: nsqd.accepted)
        closing = threading.Thread(target=consumer.close, daemon=True)
        closing.start()
        closing.join(10)
        starting.join(10)
        assert not closing.is_alive()
        assert not starting.is_alive()


def test_close_waits_for_no_lookup():
    """Not even for its share of the time: what it waits for is cut off."""
    with Peer(lambda talk: talk.stall()) as lookup:
        options = {"lookupd_request_timeout": 30, "close_timeout": 30, "dial_timeout": 0.2}
        consumer = consume(lookup_url(lookup), print, **options).start()
        eventually(lambda: lookup.accepted)
        supervisor = consumer._runtime.supervisor._thread
        with consumer._runtime.supervisor._changed:
            assert consumer._runtime.supervisor.failure is None
        consumer.close()
        assert not supervisor.is_alive()
        assert "closed" in str(consumer._runtime.supervisor.failure)


def seconds_to_close(state: str) -> float:
    """How long it takes to close a consumer whose backoff is in *state*."""

    def fail(_message: nsqsmart.Message) -> None:
        raise ValueError("oops")

    pause = 60 if state == "BACKING_OFF" else 0.05
    with Cluster() as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        publish(cluster, b"x")
        consumer = consume(cluster.url, fail, backoff_multiplier=pause, default_requeue_delay=60)
        with consumer:
            rdy_controller = consumer._runtime.rdy_controller
            eventually(lambda: rdy_controller._flow.state.name == state)
            began = monotonic()
            closing = threading.Thread(target=consumer.close, daemon=True)
            closing.start()
            closing.join(10)
            assert not closing.is_alive()
            return monotonic() - began


@pytest.mark.parametrize("state", ["BACKING_OFF", "PROBING"])
def test_close_waits_for_no_backoff(state):
    # On a machine that is busy just then it may take longer, but not each time.
    assert any(seconds_to_close(state) < 1 for _ in range(3))


def clients_objects() -> Counter[str]:
    """What there is of the client's own in memory; the servers run in this process too."""
    gc.collect()
    kinds = (type(each) for each in gc.get_objects())
    floors = ("nsqsmart.client", "nsqsmart.net", "nsqsmart.policy")
    return Counter(kind.__name__ for kind in kinds if str(kind.__module__).startswith(floors))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_many_lives_leave_nothing():
    with Cluster(dialect="original", log=False) as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        publish(cluster, *numbered(1000))
        handled = []
        threads, sockets = our_threads(), len(open_sockets())
        objects = clients_objects()
        for number in range(1000 if SOAK else 300):
            with consume(cluster.url, lambda message: handled.append(message.body)):
                if number % 50 == 0:
                    eventually(lambda: handled)
        # The server's side of the last one ends a moment later.
        eventually(lambda: our_threads() <= threads and len(open_sockets()) <= sockets + 2)
        left = clients_objects() - objects
    # No more than the last one's, which a frame may still hold.
    assert not {name: count for name, count in left.items() if count > 2}
