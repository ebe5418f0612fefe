"""Topics with headers: headers, tags and filters; SUBs that are refused, and bad messages."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster
from nsqsmart.errors import SubscribeError
from nsqsmart.wire.frames import ERROR, encode_frame
from tests import sites
from tests.helpers import eventually
from tests.integration.consuming import Handled, all_finished, numbered, publish
from tests.peers import GRANT, Peer, Talk, lookup_of, message_frame
from tests.sites import CHANNEL, real_site

COLOURS = ["red", "blue", "red", "green", None]


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def extended(request, tmp_path_factory):
    """The address of a cluster with an extended topic, whose name is that of the channel's."""
    with ExitStack() as stack:
        if request.param == "embedded":
            cluster = stack.enter_context(Cluster(nsqds=2))
            cluster.create_topic("ext", partitions=2, extend_support=True)
            cluster.create_channel("ext", CHANNEL)
            yield cluster.url
            return
        site = stack.enter_context(real_site("redesigned", tmp_path_factory.mktemp("redesigned")))
        admin = nsqsmart.Admin(site.url)
        admin.create_topic("ext", partitions=2, replicas=1, extend_support=True)
        admin.create_channel("ext", CHANNEL)
        sites.wait_for(lambda: len(site.leaders("ext")) == 2, "the topic takes messages")
        yield site.url


def fill(url: str, **arguments: object) -> None:
    with nsqsmart.Producer(url) as producer:
        for number, colour in enumerate(COLOURS):
            headers = {"number": number} | ({"colour": colour} if colour else {})
            if "tagged" in arguments:
                options = {"tag": colour} if colour else {}
            else:
                options = {"headers": headers}
            producer.publish("ext", b"%d" % number, partition=number % 2, timeout=30, **options)
        producer.publish("ext", b"plain", partition=0, timeout=30)


def consume(url: str, handled, **options) -> nsqsmart.Consumer:
    return nsqsmart.Consumer("ext", CHANNEL, handled, address=url, **options)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("positions", [False, True])
def test_headers_come_along(extended, positions):
    fill(extended)
    handled = Handled()
    with consume(extended, handled, positions=positions):
        eventually(lambda: len(handled.messages) == 6, timeout=20)
    headers = {message.body: message.headers for message in handled.messages}
    assert headers.pop(b"plain") == {}
    assert headers == {
        b"%d" % number: {"number": number} | ({"colour": colour} if colour else {})
        for number, colour in enumerate(COLOURS)
    }
    assert {message.offset is None for message in handled.messages} == {not positions}


@pytest.mark.timeout(300)
def test_a_desired_tag_gets_its_messages_first(extended):
    red, others = Handled(), Handled()
    with consume(extended, red, desired_tag="red"), consume(extended, others):
        fill(extended, tagged=True)
        eventually(lambda: len(red.messages) + len(others.messages) == 6, timeout=20)
    assert [message.tag for message in red.messages] == ["red", "red"]
    assert Counter(message.tag for message in others.messages) == Counter(
        ["blue", "green", None, None]
    )
    rest = Handled()
    # Without a consumer for the tag, any consumer gets them.
    with consume(extended, rest):
        fill(extended, tagged=True)
        eventually(lambda: len(rest.messages) == 6, timeout=20)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("rules", "bodies"),
    [
        ({"type": 1, "filter_ext_key": "colour", "filter_data": "red"}, [b"0", b"2"]),
        (
            {"type": 1, "filter_ext_key": "colour", "filter_data": "red", "inverse": True},
            [b"1", b"3", b"4", b"plain"],
        ),
        ({"type": 2, "filter_ext_key": "colour", "filter_data": "^[bg]"}, [b"1", b"3"]),
        ({"type": 3, "filter_ext_key": "colour", "filter_data": "r*"}, [b"0", b"2"]),
    ],
)
def test_a_filter_lets_through_what_matches(extended, rules, bodies):
    handled = Handled()
    with consume(extended, handled, ext_filter=rules):
        fill(extended)
        eventually(lambda: len(handled.messages) == len(bodies), timeout=20)
    assert sorted(handled.bodies()) == bodies
    rest = Handled()
    # What did not match counts as finished.
    with consume(extended, rest):
        with nsqsmart.Producer(extended) as producer:
            for partition in (0, 1):
                producer.publish("ext", b"end", partition=partition, timeout=30)
        eventually(lambda: len(rest.messages) == 2, timeout=20)
    assert rest.bodies() == [b"end", b"end"]


@pytest.mark.timeout(300)
def test_pulled_with_headers(extended):
    fill(extended)
    found = []
    for partition in (0, 1):
        options = {"partition": partition, "positions": True}
        with nsqsmart.PullSubscription(extended, "ext", CHANNEL, **options) as source:
            while messages := source.pull(10, timeout=1):
                found += messages
                source.finish(messages)
    assert sorted(message.headers.get("number", -1) for message in found) == [-1, 0, 1, 2, 3, 4]


# --------------------------------------------------------------------------- refused SUBs, faults


@pytest.mark.parametrize(
    ("code", "settings"),
    [
        ("E_SUB_ORDER_IS_MUST", {}),
        ("E_SUB_EXTEND_NEED", {}),
        ("E_SUB_EXTEND_FORBIDDON", {"extend_support": True}),
    ],
)
def test_what_the_lookup_said_wrong_is_corrected_once(code, settings):
    """Its metadata are older than the topic: an assumption is turned round, and no more."""
    seen: list[tuple[bytes, bool]] = []

    def nsqd(talk: Talk) -> None:
        offer = talk.greet()
        line = talk.line()
        ordered = line.startswith(b"SUB_ORDERED")
        wants_headers = bool(offer.get("extend_support"))
        seen.append((line, wants_headers))
        right = {
            "E_SUB_ORDER_IS_MUST": ordered,
            "E_SUB_EXTEND_NEED": wants_headers,
            "E_SUB_EXTEND_FORBIDDON": not wants_headers,
        }[code]
        if not right:
            talk.send(encode_frame(ERROR, f"{code} it is otherwise".encode()))
            return
        talk.ok()
        while talk.line() != b"CLS":
            pass

    with Peer(nsqd) as server:
        leaders = {0: server.address}
        with Peer(lookup_of(leaders, **settings)) as lookup:
            url = "nsq+lookupd://{}:{}".format(*lookup.address)
            options = {"address": url, "lookupd_min_refresh_interval": 0.01}
            with nsqsmart.Consumer("t", "c", print, **options) as consumer:
                eventually(lambda: consumer.health().state == "ready")
            source = nsqsmart.PullSubscription(url, "t", "c", lookupd_min_refresh_interval=0.01)
            source.open(timeout=5)
            source.close()
    # Wrong once, right from then on; the same for who pulls.
    assert len(seen) == 4


@pytest.mark.parametrize(
    "code", ["E_SUB_ORDER_IS_MUST", "E_SUB_EXTEND_NEED", "E_SUB_EXTEND_FORBIDDON"]
)
def test_a_server_that_is_never_content_is_tried_again_with_pauses(code):
    tries: list[bytes] = []

    def nsqd(talk: Talk) -> None:
        talk.greet()
        tries.append(talk.line())
        talk.send(encode_frame(ERROR, f"{code} no".encode()))

    with Peer(nsqd) as server, Peer(lookup_of({0: server.address})) as lookup:
        url = "nsq+lookupd://{}:{}".format(*lookup.address)
        options = {"address": url, "dial_timeout": 0.5, "lookupd_min_refresh_interval": 0.01}
        with nsqsmart.Consumer("t", "c", print, **options) as consumer:
            eventually(lambda: len(tries) >= 3)
            assert not consumer.health().ok or consumer.health().state == "discovering"
            assert code in str(consumer.health().reasons)
        source = nsqsmart.PullSubscription(url, "t", "c", lookupd_min_refresh_interval=0.01)
        with pytest.raises(SubscribeError, match=code):
            source.open(timeout=0.5)


@pytest.mark.parametrize(
    ("layout", "bad"),
    [
        # Ordered, and it ends within offset and size.
        ({"ordered": True}, message_frame(1 << 64, b"short")),
        # Of no type there is, and shorter than its head.
        ({}, b"\0\0\0\x06\0\0\0\x07oh"),
        ({}, b"\0\0\0\x0a\0\0\0\x02shorty"),
        # Said to be 2 GB.
        ({}, b"\x7f\xff\xff\xff\0\0\0\x02"),
        # Bigger than max_frame_size, and all of it there.
        ({}, message_frame(1, b"x" * 5000)),
    ],
)
def test_a_bad_message_ends_its_connection_and_no_handler_sees_it(layout, bad):
    good = message_frame(2 << 64, (7).to_bytes(8, "big") + (30).to_bytes(4, "big") + b"good")
    if not layout:
        good = message_frame(2, b"good")
    sent = [bad, good]

    def nsqd(talk: Talk) -> None:
        talk.greet(GRANT)
        talk.line()
        talk.ok()
        told = False
        while (line := talk.line()) != b"CLS":
            if line.startswith(b"RDY ") and line != b"RDY 0" and not told:
                told = True
                talk.send(sent.pop(0) if sent else b"")

    handled = Handled()
    with Peer(nsqd) as server, Peer(lookup_of({0: server.address}, **layout)) as lookup:
        url = "nsq+lookupd://{}:{}".format(*lookup.address)
        options = {
            "address": url,
            "max_frame_size": 1024,
            "lookupd_min_refresh_interval": 0.01,
            "close_timeout": 1,
        }
        with nsqsmart.Consumer("t", "c", handled, **options):
            eventually(lambda: handled.bodies() == [b"good"])
        assert server.accepted == 2


def test_a_giant_message_ends_nothing_where_it_is_permitted():
    """5 MiB is what the servers take at most, too."""
    with Cluster(max_msg_size=6 << 20, max_body_size=7 << 20) as cluster:
        cluster.create_topic("t", partitions=1)
        cluster.create_channel("t", "c")
        giant = b"x" * (5 << 20)
        publish(cluster, giant, *numbered(3), partition=0)
        handled = Handled()
        with nsqsmart.Consumer("t", "c", handled, address=cluster.url, workers=1):
            eventually(lambda: handled.bodies() == [giant, *numbered(3)])
            all_finished(cluster)
