"""Networks that swallow, cut and crumble what is sent: TCP and TLS as they rarely are."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import snappy
import trustme

import nsqsmart
from nsqsmart.errors import ConnectionLost, Outcome, PublishError, PublishFailed
from nsqsmart.wire.frames import ERROR, HEARTBEAT_FRAME, OK_FRAME, RESPONSE, encode_frame
from tests.encoding import CLOSE_WAIT_FRAME
from tests.helpers import eventually
from tests.integration.consuming import Handled
from tests.integration.publishing import codes, failure, published, shared
from tests.peers import GRANT, Peer, Script, Talk, http_script, lookup_of, message_frame

QUICK = {"lookupd_poll_interval": 0.1, "lookupd_min_refresh_interval": 0.05}


def consume(url: str, handler, **options):
    return nsqsmart.Consumer("t", "c", handler, address=url, **(QUICK | options))


def healthy(talk: Talk) -> None:
    talk.greet()
    while True:
        talk.line()
        talk.body()
        talk.ok()


# --------------------------------------------------------------------- connects that never end


@contextmanager
def hole() -> Iterator[tuple[str, int]]:
    """An address where connecting never ends: the backlog is full, and no server accepts."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()


def test_a_connect_that_never_ends_is_not_sent_and_its_place_is_free_again():
    options = {"dial_timeout": 0.1, "pool_size": 1, "publish_attempts": 1, "close_timeout": 0}
    with hole() as address, nsqsmart.Producer("nsq://{}:{}".format(*address), **options) as one:
        for _ in range(3):
            error = failure(one, timeout=3)
            # Not a PublishTimeout: the call had time left. Not a PoolTimeout: none is lent.
            assert type(error) is PublishFailed
            assert (error.outcome, codes(error)) == (Outcome.NOT_SENT, ["ConnectError"])


def test_who_waits_for_a_connect_that_never_ends_is_in_nobodys_way():
    failed: list[PublishError] = []

    def wait(producer: nsqsmart.Producer) -> None:
        try:
            producer.publish("t", b"x", partition=0, timeout=30)
        except PublishError as error:
            failed.append(error)

    with hole() as address, Peer(healthy) as nsqd:
        leaders = {0: address, 1: nsqd.address}
        with Peer(lookup_of(leaders)) as lookup:
            url = "nsq+lookupd://{}:{}".format(*lookup.address)
            producer = nsqsmart.Producer(url, dial_timeout=30, pool_size=1, close_timeout=0)
            waiting = threading.Thread(target=wait, args=(producer,))
            waiting.start()
            eventually(lambda: any(p.count() for p in shared(producer).pool._hosts.values()))
            for _ in range(5):
                assert producer.publish("t", b"y", partition=1, timeout=5).attempts == 1
            assert waiting.is_alive()
            producer.close()
            waiting.join(10)
    assert [error.outcome for error in failed] == [Outcome.NOT_SENT]


# ---------------------------------------------------------------------------- data alone is life


def subscribe_plain(talk: Talk) -> Callable[[bytes], None]:
    """Up to the first RDY; how messages are sent then."""
    talk.greet()
    talk.line()
    talk.ok()
    talk.line()
    return talk.send


def subscribe_packed(talk: Talk) -> Callable[[bytes], None]:
    """Grant snappy, and answer inside it."""
    talk.greet(json.dumps({"version": "1.3.0", "snappy": True}).encode())
    there, back = snappy.StreamDecompressor(), snappy.StreamCompressor()
    talk.send(back.add_chunk(OK_FRAME))
    heard = b""
    while b"SUB" not in heard:
        heard += there.decompress(talk.sock.recv(4096))
    talk.send(back.add_chunk(OK_FRAME))
    while b"RDY" not in heard:
        heard += there.decompress(talk.sock.recv(4096))
    return lambda data: talk.send(back.add_chunk(data))


@pytest.mark.parametrize("packed", [False, True])
def test_messages_without_heartbeats_are_signs_of_life(packed):
    """The server sends no heartbeats any more; what it sends keeps the connection all the same."""
    step = threading.Semaphore(0)

    def script(talk: Talk) -> None:
        send = subscribe_packed(talk) if packed else subscribe_plain(talk)
        for number in range(3):
            while not step.acquire(timeout=0.05):
                if talk.released.is_set():
                    return
            send(message_frame(number, b"%d" % number))
        talk.stall()

    handled = Handled()
    options = {"heartbeat_interval": 30, "close_timeout": 0.1, "snappy": packed}
    with Peer(script) as nsqd, consume(nsqd.url, handled, **options) as one:
        eventually(lambda: [each for each in one._runtime.snapshot() if each.live])
        (subscription,) = one._runtime.snapshot()
        for number in range(3):
            # As if 50 s had passed: 25 s later it would be dialled again.
            subscription.heard_at -= 50
            before = subscription.heard_at
            step.release()
            eventually(lambda count=number + 1: len(handled.messages) == count)
            assert subscription.heard_at > before + 40
            subscription.watch(before + 76)
        assert handled.bodies() == [b"0", b"1", b"2"]
        assert (subscription.live, nsqd.accepted) == (True, 1)


# -------------------------------------------------------------------------------- single bytes


class Crumbs(Talk):
    """Sends every byte in a segment of its own."""

    def send(self, data: bytes) -> None:
        for at in range(len(data)):
            self.sock.sendall(data[at : at + 1])


def crumbling(script: Script) -> Script:
    def play(talk: Talk) -> None:
        talk.__class__ = Crumbs
        script(talk)

    return play


def serving(said: list[bytes]) -> Script:
    """An nsqd for consumers: messages, a heartbeat and a refusal between them, and CLOSE_WAIT."""
    late = encode_frame(ERROR, b"E_FIN_FAILED FIN 0000000000000000 failed ID not in flight")
    stream = [message_frame(1, b"first"), HEARTBEAT_FRAME, message_frame(2, b"x" * 300), late]
    stream += [message_frame(3, b""), encode_frame(RESPONSE, b"_heartbeat_")]

    def script(talk: Talk) -> None:
        talk.greet()
        told = False
        while True:
            line = talk.line()
            said.append(line.split()[0])
            if line.startswith(b"SUB"):
                talk.ok()
            elif line == b"CLS":
                talk.send(CLOSE_WAIT_FRAME)
            elif line.startswith(b"RDY ") and line != b"RDY 0" and not told:
                told = True
                talk.send(b"".join(stream))

    return script


@pytest.mark.parametrize("crumbled", [False, True])
@pytest.mark.parametrize("pulled", [False, True])
def test_what_is_consumed_is_the_same_whatever_the_segments(crumbled, pulled):
    said: list[bytes] = []
    script = crumbling(serving(said)) if crumbled else serving(said)
    with Peer(script) as nsqd:
        if pulled:
            host = "{}:{}".format(*nsqd.address)
            with nsqsmart.PullSubscription(nsqd.url, "t", "c", nsqd=host) as source:
                source.set_rdy(10)
                messages: list[nsqsmart.Message] = []
                while len(messages) < 3:
                    messages += source.pull(10, timeout=10)
                source.finish(messages)
                report = source.drain()
            assert len(report.refused) == 1
        else:
            handled = Handled()
            with consume(nsqd.url, handled, workers=1) as consumer:
                eventually(lambda: len(handled.messages) == 3)
                eventually(lambda: said.count(b"FIN") == 3)
                eventually(lambda: consumer._runtime.late_answers == 1)
            messages = handled.messages
        assert [message.body for message in messages] == [b"first", b"x" * 300, b""]
        assert nsqd.accepted == 1
    assert (said.count(b"SUB"), said.count(b"FIN"), said.count(b"CLS")) == (1, 3, 1)


def test_what_lookups_say_is_the_same_whatever_the_segments():
    """And an nsqd that crumbles its handshake and its answers."""
    with (
        Peer(crumbling(healthy)) as nsqd,
        Peer(crumbling(lookup_of({0: nsqd.address}))) as lookup,
        nsqsmart.Producer("nsq+lookupd://{}:{}".format(*lookup.address)) as producer,
    ):
        for _ in range(3):
            receipt = producer.publish("t", b"x", timeout=10)
            assert (receipt.partition, receipt.attempts) == (0, 1)
        assert producer.publish_async("t", b"x").result(10).attempts == 1


# -------------------------------------------------------------------- TLS that ends without a word


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def trusted(authority, tmp_path_factory) -> dict[str, object]:
    file: Path = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    return {"tls_v1": True, "tls_root_ca_file": str(file)}


def inside_tls(
    authority: trustme.CA, wait_for: bytes, last: bytes, *, polite: bool = False
) -> Script:
    """Reads until *wait_for* has come, says *last*, and ends the TCP connection.

    Without the close_notify that ends a TLS stream, unless *polite*.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    def script(talk: Talk) -> None:
        talk.greet(json.dumps(json.loads(GRANT) | {"tls_v1": True}).encode())
        inside = context.wrap_socket(talk.sock, server_side=True)
        with inside:
            inside.sendall(OK_FRAME)
            heard, subscribed = b"", False
            while wait_for not in heard:
                data = inside.recv(4096)
                if not data:
                    return
                heard += data
                if b"SUB" in heard and not subscribed:
                    subscribed = True
                    inside.sendall(OK_FRAME)
            inside.sendall(last)
            if polite:
                with contextlib.suppress(OSError):
                    inside.setblocking(False)
                    inside.unwrap()
            inside.shutdown(socket.SHUT_RDWR)

    return script


POLITE = pytest.mark.parametrize("polite", [False, True])


@POLITE
@pytest.mark.parametrize("last", [b"", OK_FRAME[:7]], ids=["nothing", "half an answer"])
@pytest.mark.parametrize("way", ["publish", "publish_many", "publish_async"])
def test_tls_that_ends_before_the_answer_leaves_a_message_in_doubt(
    authority, trusted, way, last, polite
):
    script = inside_tls(authority, b"body", last, polite=polite)
    with (
        Peer(script) as nsqd,
        nsqsmart.Producer(nsqd.url, publish_attempts=1, **trusted) as producer,
        pytest.raises(PublishError) as caught,
    ):
        published(producer, way, b"body")
    assert caught.value.outcome is Outcome.UNCERTAIN
    assert (codes(caught.value), caught.value.answered) == (["ConnectionLost"], False)


@POLITE
@pytest.mark.parametrize("workers", [0, 1])
def test_tls_that_ends_within_a_message_hands_out_the_whole_ones_and_is_made_again(
    authority, trusted, workers, polite
):
    last = message_frame(1, b"whole") + message_frame(2, b"half" * 10)[:-5]
    handled = Handled()
    with (
        Peer(inside_tls(authority, b"RDY", last, polite=polite)) as nsqd,
        consume(nsqd.url, handled, workers=workers, **trusted),
    ):
        eventually(lambda: nsqd.accepted > 1)
        eventually(lambda: handled.messages)
    assert set(handled.bodies()) == {b"whole"}


def pull_all(source: nsqsmart.PullSubscription, found: list[nsqsmart.Message]) -> None:
    for _ in range(10):
        found += source.pull(5, timeout=1)


@POLITE
def test_who_pulls_is_told_that_tls_has_ended(authority, trusted, polite):
    last = message_frame(1, b"whole") + message_frame(2, b"half" * 10)[:-5]
    with Peer(inside_tls(authority, b"RDY", last, polite=polite)) as nsqd:
        host = "{}:{}".format(*nsqd.address)
        with nsqsmart.PullSubscription(nsqd.url, "t", "c", nsqd=host, **trusted) as source:
            source.set_rdy(5)
            found: list[nsqsmart.Message] = []
            with pytest.raises(ConnectionLost):
                pull_all(source, found)
    # On a connection that is gone it could not be answered: it may go with it.
    assert [message.body for message in found] in ([], [b"whole"])


def test_a_lookup_that_is_cut_off_is_one_that_failed():
    """Of a plain HTTP answer the end is known by its length alone."""
    cut = http_script(lambda _path: b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"producers":')
    with Peer(cut) as lookup:
        url = "nsq+lookupd://{}:{}".format(*lookup.address)
        with nsqsmart.Producer(url) as producer:
            assert failure(producer, timeout=0.5).outcome is Outcome.NOT_SENT
