"""The proxy does to a connection what it was told, and nothing else."""

from __future__ import annotations

import socket
import threading
from time import monotonic

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster
from nsqsmart.errors import Outcome
from nsqsmart.testing.cutting import Commands, Frames, Opaque
from nsqsmart.testing.proxy import ALWAYS, DOWN, UP, Proxy, after, on
from nsqsmart.wire import commands
from nsqsmart.wire.frames import ERROR, HEARTBEAT_FRAME, MESSAGE, OK_FRAME, RESPONSE, encode_frame
from tests.conftest import open_sockets, our_threads
from tests.helpers import eventually

STREAM = [
    ("", commands.MAGIC_V2),
    ("IDENTIFY", commands.identify(b"{}")),
    ("SUB", commands.sub("t", "c", 0)),
    ("RDY", commands.rdy(5)),
    ("PUB", commands.pub("t", b"PUB t\nRDY 1\n", 0)),
    ("MPUB", commands.mpub("t", [b"a", b"bb"], 0)),
    ("FIN", commands.fin(b"\n" * 16)),
    ("REQ", commands.req(b"0123456789abcde\n", 0)),
    ("TOUCH", commands.touch(b"0" * 16)),
    ("NOP", commands.NOP),
    ("CLS", commands.CLS),
]
FRAMES = [
    ("RESPONSE", encode_frame(RESPONSE, b'{"max_rdy_count": 5, "snappy": false}')),
    ("RESPONSE", OK_FRAME),
    ("HEARTBEAT", HEARTBEAT_FRAME),
    ("MESSAGE", encode_frame(MESSAGE, b"x" * 100)),
    ("ERROR", encode_frame(ERROR, b"E_BAD_TOPIC no")),
]


@pytest.fixture(autouse=True)
def _nothing_is_left():
    threads, sockets = our_threads(), open_sockets()
    yield
    eventually(lambda: our_threads() <= threads and open_sockets() <= sockets, timeout=5)


@pytest.fixture(params=["original", "redesigned"])
def cluster(request):
    with Cluster(dialect=request.param) as made:
        made.create_topic("t")
        made.create_channel("t", "c")
        yield made


@pytest.fixture
def proxy(cluster):
    with Proxy(cluster.nsqds[0].name) as made:
        yield made


@pytest.fixture
def producer(cluster, proxy):
    with nsqsmart.Producer(cluster.url, address_map=proxy.address_map, publish_attempts=1) as made:
        yield made


def bodies(cluster):
    return [each.body for each in cluster.stored("t")]


def failure(producer, body=b"x", timeout=5.0):
    with pytest.raises(nsqsmart.PublishError) as caught:
        producer.publish("t", body, timeout=timeout)
    return caught.value


@pytest.mark.parametrize("width", [1, 3, 7, 10_000])
@pytest.mark.parametrize(("kind", "stream"), [(Commands, STREAM), (Frames, FRAMES)])
def test_a_stream_is_cut_where_its_pieces_end(kind, stream, width):
    cutter = kind(Opaque())
    data = b"".join(piece for _, piece in stream)
    found = [
        piece
        for start in range(0, len(data), width)
        for piece in cutter.feed(data[start : start + width])
    ]
    assert found == stream
    assert cutter.rest() == b""


def test_what_is_no_nsq_goes_by_as_it_is():
    for kind, data in [(Commands, b"GET /x HTTP/1.1\r\n\r\n"), (Frames, b"HTTP/1.1 200 OK\r\n")]:
        opaque = Opaque()
        assert [*kind(opaque).feed(data)] == [("", data)]
        assert opaque.value
    grant = encode_frame(RESPONSE, b'{"snappy": true}')
    opaque = Opaque()
    assert [*Frames(opaque).feed(grant + b"\xff\x06")] == [("RESPONSE", grant), ("", b"\xff\x06")]
    assert opaque.value


def test_without_faults_everything_goes_by(cluster, proxy, producer):
    for number in range(5):
        producer.publish("t", b"%d" % number)
    producer.publish_many("t", [b"x" * 300_000, b"y" * 300_000])
    got = []
    with nsqsmart.Consumer(
        "t", "c", lambda m: got.append(m.body), address=cluster.url, address_map=proxy.address_map
    ):
        eventually(lambda: len(got) == 7)
    assert proxy.connections == 2


def test_a_command_is_torn(cluster, proxy, producer):
    fault = proxy.add(on("PUB", nth=2).cut(after=10))
    producer.publish("t", b"first")
    assert failure(producer).outcome is Outcome.UNCERTAIN
    producer.publish("t", b"third")
    assert (fault.acted, bodies(cluster)) == (1, [b"first", b"third"])


def test_a_command_is_swallowed_or_an_answer_is(cluster, proxy, producer):
    proxy.add(on("PUB").drop())
    assert failure(producer, b"never arrives", 0.3).code == "ResponseTimeout"
    producer.publish("t", b"warm")
    proxy.add(on("RESPONSE").drop())
    assert failure(producer, b"arrives", 0.3).outcome is Outcome.UNCERTAIN
    assert bodies(cluster) == [b"warm", b"arrives"]


def test_the_connection_ends_in_order_or_not(cluster, proxy, producer):
    for fault in (on("PUB").close(), on("PUB").cut(), on("PUB").close(after=3)):
        proxy.add(fault)
        assert failure(producer).code == "ConnectionLost"
    producer.publish("t", b"x")
    proxy.cut_all()
    assert (proxy.connections, len(proxy._links)) == (4, 0)
    producer.publish("t", b"y")
    assert bodies(cluster) == [b"x", b"y"]
    proxy.close()
    with pytest.raises(RuntimeError, match="the proxy is closed"):
        proxy.cut_all()


def test_what_is_delayed_comes_later(proxy, producer):
    producer.publish("t", b"x")
    proxy.add(on("PUB").delay(0.2))
    began = monotonic()
    producer.publish("t", b"y")
    assert monotonic() - began >= 0.2


def test_a_stalled_connection_says_nothing_more(cluster, proxy, producer):
    producer.publish("t", b"x")
    proxy.add(on("PUB").stall())
    assert failure(producer, b"stalled", 0.3).code == "ResponseTimeout"
    producer.publish("t", b"y")
    assert bodies(cluster) == [b"x", b"y"]


def test_the_server_is_gone_and_the_client_does_not_know(cluster, proxy, producer):
    producer.publish("t", b"x")
    proxy.add(on("PUB").half_open())
    assert failure(producer, b"lost", 0.3).code == "ResponseTimeout"
    eventually(lambda: bodies(cluster) == [b"x"])


def test_garbage_takes_the_place_of_a_frame(proxy, producer):
    producer.publish("t", b"x")
    proxy.add(on("RESPONSE").garbage(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    assert failure(producer).code == "ProtocolError"


def test_a_fin_that_is_lost_brings_the_message_again(cluster, proxy):
    with nsqsmart.Producer(cluster.url) as producer:
        producer.publish("t", b"x")
    proxy.add(on("FIN").cut())
    got = []
    with nsqsmart.Consumer(
        "t",
        "c",
        lambda m: got.append(m.attempts),
        address=cluster.url,
        address_map=proxy.address_map,
        lookupd_poll_interval=0.1,
        msg_timeout=1,
    ):
        eventually(lambda: len(got) == 2)


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_a_connection_ends_behind_so_many_bytes(proxy, direction):
    fault = proxy.add(after(20, direction).close())
    with raw(proxy) as sock:
        sock.sendall(commands.MAGIC_V2 + commands.identify(b'{"feature_negotiation": true}'))
        got = b""
        while data := sock.recv(100):
            got += data
    assert fault.acted == 1
    assert len(got) == (20 if direction is DOWN else 0)


def test_an_rst_is_one_and_an_end_is_none(proxy):
    proxy.add(on("IDENTIFY").cut())
    with raw(proxy) as sock:
        sock.sendall(commands.MAGIC_V2 + commands.identify(b"{}"))
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
    proxy.add(on("IDENTIFY").close())
    with raw(proxy) as sock:
        sock.sendall(commands.MAGIC_V2 + commands.identify(b"{}"))
        assert sock.recv(1) == b""


def test_bytes_are_counted_where_nothing_can_be_told_apart(cluster, proxy):
    options = {"snappy": True, "address_map": proxy.address_map, "publish_attempts": 1}
    with nsqsmart.Producer(cluster.url, **options) as producer:
        producer.publish("t", b"x")
        proxy.add(after(0, UP).cut())
        producer.publish("t", b"y")
        proxy.clear()
        proxy.add(after(5000, UP).cut())
        many = [bytes([number % 251]) * 7 + b"%d" % number for number in range(2000)]
        with pytest.raises(nsqsmart.PublishError):
            producer.publish_many("t", many)
    assert bodies(cluster) == [b"x", b"y"]


def raw(proxy):
    host, _, port = proxy.address.partition(":")
    sock = socket.create_connection((host, int(port)), 5)
    sock.settimeout(5)
    return sock


def test_a_server_that_is_not_there(cluster):
    nsqd = cluster.nsqds[0]
    cluster.kill(nsqd)
    with Proxy(nsqd.name) as proxy, raw(proxy) as sock:
        assert sock.recv(1) == b""


def test_it_stands_before_a_lookup_too(cluster):
    with Proxy(cluster.lookupds[0].name) as proxy:
        with nsqsmart.Producer(f"nsq+lookupd://{proxy.address}") as producer:
            producer.publish("t", b"x")
        fault = proxy.add(after(0, UP, times=ALWAYS).close())
        with (
            nsqsmart.Producer(f"nsq+lookupd://{proxy.address}") as producer,
            pytest.raises(nsqsmart.PublishError),
        ):
            producer.publish("t", b"x", timeout=0.5)
        assert fault.acted >= 1


def test_it_ends_with_connections_open_and_stalled(cluster):
    with Proxy(cluster.nsqds[0].name) as proxy:
        proxy.add(on("IDENTIFY").stall())
        with raw(proxy) as sock, raw(proxy) as other:
            sock.sendall(commands.MAGIC_V2 + commands.identify(b"{}"))
            eventually(lambda: proxy.connections == 2)
            proxy.close()
            proxy.close()
            assert other.recv(1) == b""


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: on("PUBB"), "did you mean 'PUB'"),
        (lambda: on("/lookup"), r"is HTTP, which goes by unread: use after"),
        (lambda: on("PUB", nth=0), "nth=0"),
        (lambda: after(-1, UP), "bytes from 0"),
    ],
)
def test_what_could_never_act_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_a_fault_must_say_what_happens(proxy):
    with pytest.raises(ValueError, match="say what happens"):
        proxy.add(on("PUB"))


@pytest.mark.parametrize("fault", [on("PUB").reply("E_X"), on("PUB").store_then_reset()])
def test_what_only_a_server_does_is_refused(proxy, fault):
    with pytest.raises(ValueError, match="no proxy can do .* on PUB: a server can"):
        proxy.add(fault)


def test_of_two_faults_both_count_what_one_acts_on(cluster, proxy, producer):
    first = proxy.add(on("PUB").cut())
    second = proxy.add(on("PUB", nth=2).drop())
    failure(producer)
    failure(producer, b"never arrives", 0.3)
    assert (first.acted, second.acted) == (1, 1)


def test_many_threads_at_once(cluster, proxy, producer):
    def run():
        for _ in range(20):
            producer.publish("t", b"x")

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(bodies(cluster)) == 80
