"""What a redesigned nsqd that stands alone is asked; @T@ stands for a topic of its own."""

from __future__ import annotations

import json
from collections.abc import Callable

from nsqsmart.wire import commands
from nsqsmart.wire.messages import MessageLayout
from tests.differential.player import Connection, Player
from tests.differential.scenarios_original import commands_before_a_subscription, identify

Scenario = Callable[[Player], None]
SCENARIOS: dict[str, Scenario] = {}
T = "@T@"
DETAILED = MessageLayout(detailed=True)
EXTENDED = MessageLayout(extended=True)
BOTH = MessageLayout(extended=True, detailed=True)


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def prepare(play: Player, *channels: str, extended: bool = False) -> Connection:
    """The topic's partition 0, with channels; a connection to publish on."""
    publisher = play.connect("publisher")
    publisher.ask(commands.internal_create_topic(T, 0, extended=extended))
    for channel in channels:
        play.http("POST", f"/channel/create?topic=@T@&partition=0&channel={channel}")
    return publisher


def publish(publisher: Connection, *bodies: bytes) -> None:
    for body in bodies:
        publisher.ask(commands.pub(T, body, 0))


def subscribe(
    play: Player, line: bytes, rdy: int = 1, layout: MessageLayout = DETAILED, name: str = "a"
) -> Connection:
    client = play.connect(name, layout=layout)
    if layout.extended:
        identify(client, extend_support=True)
    client.ask(line)
    client.send(commands.rdy(rdy))
    return client


def stats(play: Player) -> None:
    """The figures of the topic that are the same everywhere."""
    _, data = play.ask("GET", "/stats?format=json&topic=@T@")
    document = json.loads(data)
    for topic in document.get("data", document)["topics"]:
        play.note("stats", *(f"{name}={topic[name]}" for name in ("depth", "is_ext")))
        for channel in topic["channels"]:
            play.note("stats", *(f"{name}={channel[name]}" for name in _CHANNEL))


_CHANNEL = (
    "channel_name",
    "depth",
    "in_flight_count",
    "requeue_count",
    "timeout_count",
    "client_num",
    "message_count",
    "paused",
    "skipped",
)


@scenario
def publish_and_consume(play):
    publish(prepare(play, "ch"), b"one", b"two")
    client = subscribe(play, b"SUB @T@ ch 0\n", 2, MessageLayout())
    for message in client.expect(2):
        client.send(commands.fin(message.id))
    client.silence()
    stats(play)


@scenario
def offsets_and_sizes(play):
    publish(prepare(play, "ch"), b"1", b"22", b"333")
    client = subscribe(play, b"SUB_ADVANCED @T@ ch 0\n", 10)
    client.expect(3)


@scenario
def a_trace_id_comes_back_and_goes_with_the_message(play):
    publisher = prepare(play, "ch")
    for trace in (0, 1, 2**64 - 1):
        publisher.send(commands.pub_trace(T, b"body", trace, 0))
        receipt(play, publisher)
    client = subscribe(play, b"SUB_ADVANCED @T@ ch 0\n", 10)
    for message in client.expect(3):
        play.note("trace", message.id[8:].hex())


@scenario
def batches(play):
    publisher = prepare(play, "ch")
    publisher.ask(commands.mpub(T, [b"1", b"22"], 0))
    publisher.send(commands.mpub_trace(T, [(5, b"3"), (6, b"44")], 0))
    receipt(play, publisher)
    client = subscribe(play, b"SUB_ADVANCED @T@ ch 0\n", 10)
    for message in client.expect(4):
        play.note("trace", message.id[8:].hex())


@scenario
def topics_and_partitions_that_are_not_there(play):
    prepare(play)
    for line in (b"PUB @T@ 1\n", b"PUB absent 0\n", b"PUB absent\n"):
        client = play.connect()
        client.ask(line + (1).to_bytes(4) + b"x")
        client.closed()
    client = play.connect()
    client.ask(b"PUB @T@ x\n" + (1).to_bytes(4) + b"x")
    client.closed()
    for line in (b"SUB @T@ ch 1\n", b"SUB absent ch 0\n", b"SUB @T@ ch x\n", b"SUB $ ch 0\n"):
        client = play.connect()
        client.ask(line)
        client.closed()


@scenario
def without_a_partition_the_default_one_is_meant(play):
    publisher = prepare(play, "ch")
    publisher.ask(commands.pub(T, b"x"))
    subscribe(play, b"SUB_ADVANCED @T@ ch\n").message()


@scenario
def creating_topics(play):
    client = prepare(play)
    client.ask(b"INTERNAL_CREATE_TOPIC @T@ 0\n")
    client.ask(b"INTERNAL_CREATE_TOPIC @T@ 3\n")
    for line in (b"@T@", b"$ 0", b"@T@ x", b"@T@ -1", b"@T@ 1 maybe", b""):
        client = play.connect()
        client.ask(b"INTERNAL_CREATE_TOPIC %s\n" % line)
        client.closed()


@scenario
def bodies_that_cannot_be(play):
    prepare(play)
    for verb, size in (
        (b"PUB", 0),
        (b"PUB", 0xFFFFFFFF),
        (b"PUB", 1024 * 1024 + 1),
        (b"PUB_TRACE", 8),
        (b"PUB_TRACE", 3),
        (b"PUB_EXT", 2),
    ):
        client = play.connect()
        client.ask(verb + b" @T@ 0\n" + size.to_bytes(4) + b"12345678")
        client.closed()


@scenario
def batches_that_cannot_be(play):
    prepare(play)
    for numbers in ((0,), (5 * 1024 * 1024 + 1,), (8, 0), (8, 1, 0), (13, 1, 0xFFFFFFFF)):
        client = play.connect()
        client.ask(b"MPUB @T@ 0\n" + b"".join(number.to_bytes(4) for number in numbers))
        client.closed()


@scenario
def a_header_on_a_plain_topic_is_refused(play):
    publisher = prepare(play, "ch")
    publisher.ask(commands.pub_ext(T, b"x", b'{"a":"b"}', 0))
    publisher.ask(commands.pub_ext(T, b"x", b"not json", 0))
    publisher.ask(commands.pub(T, b"y", 0))


@scenario
def an_extended_topic(play):
    publisher = prepare(play, "ch", extended=True)
    publisher.ask(commands.pub_ext(T, b"1", b'{"a":"b"}', 0))
    publisher.send(commands.pub_ext(T, b"2", b'{"##trace_id":"7"}', 0))
    receipt(play, publisher)
    publisher.ask(commands.pub(T, b"3", 0))
    publisher.send(commands.pub_trace(T, b"4", 9, 0))
    receipt(play, publisher)
    subscribe(play, b"SUB_ADVANCED @T@ ch 0\n", 10, BOTH).expect(4)
    stats(play)


@scenario
def headers_that_cannot_be(play):
    publisher = prepare(play, "ch", extended=True)
    for header in (
        b"[]",
        b"{",
        b"1",
        b'{"a":1}',
        b'{"##trace_id":"x"}',
        b'{"##trace_id":1}',
        b"{}",
    ):
        publisher.ask(commands.pub_ext(T, b"x", header, 0))


@scenario
def an_extended_topic_wants_extended_clients(play):
    prepare(play, "ch", extended=True)
    client = subscribe(play, b"SUB @T@ ch 0\n", 1, MessageLayout())
    client.closed()


@scenario
def a_plain_topic_wants_plain_clients(play):
    prepare(play, "ch")
    client = subscribe(play, b"SUB @T@ ch 0\n", 1, EXTENDED)
    client.closed()


@scenario
def ordered_delivery_has_one_message_out(play):
    publisher = prepare(play, "ch")
    # Else a channel that becomes ordered may deliver its first message twice
    # (protocol#ordered-cluster).
    play.http("POST", "/channel/setorder?topic=@T@&partition=0&channel=ch&order=true")
    publish(publisher, b"1", b"2", b"3")
    client = subscribe(play, b"SUB_ORDERED @T@ ch 0\n", 10)
    message = client.message()
    client.silence()
    client.send(commands.fin(message.id))
    message = client.message()
    client.send(commands.req(message.id, 0))
    again = client.message()
    client.send(commands.fin(again.id))
    client.message()
    stats(play)


@scenario
def requeue_and_timeout(play):
    publish(prepare(play, "ch"), b"1")
    client = play.connect(layout=DETAILED)
    identify(client, msg_timeout=1000)
    client.ask(b"SUB_ADVANCED @T@ ch 0\n")
    client.send(commands.rdy(1))
    client.send(commands.req(client.message().id, 0))
    client.message()
    again = client.message()
    client.send(commands.fin(again.id))
    client.silence()
    stats(play)


@scenario
def ids_that_are_not_in_flight(play):
    publish(prepare(play, "ch"), b"1")
    client = subscribe(play, b"SUB_ADVANCED @T@ ch 0\n")
    message = client.message()
    absent = (2**40).to_bytes(8) + bytes(8)
    for command in (commands.fin(absent), commands.req(absent, 0), commands.touch(absent)):
        client.ask(command)
    client.send(commands.fin(message.id))
    client.silence()


@scenario
def finishing_out_of_order_confirms_up_to_the_first_that_is_open(play):
    publish(prepare(play, "ch"), b"1", b"2", b"3")
    client = subscribe(play, b"SUB_ADVANCED @T@ ch 0\n", 10)
    first, second, third = client.expect(3)
    client.send(commands.fin(third.id) + commands.fin(second.id))
    client.silence()
    stats(play)
    client.send(commands.fin(first.id))
    client.silence()
    stats(play)


@scenario
def a_new_channel_begins_at_the_end(play):
    publisher = prepare(play, "ch")
    publish(publisher, b"old")
    client = subscribe(play, b"SUB_ADVANCED @T@ later 0\n")
    client.silence()
    publish(publisher, b"new")
    client.message()


@scenario
def starts_that_cannot_be(play):
    prepare(play, "ch")
    for start in (b"x", b"special:x", b"special:0", b"timestamp:1", b"virtual_queue:0", b"what:1"):
        client = play.connect()
        client.ask(b"SUB_ADVANCED @T@ ch 0 %s\n" % start)
        client.closed()


@scenario
def what_a_lost_consumer_held_goes_to_another_at_once(play):
    publish(prepare(play, "ch"), b"1")
    first = subscribe(play, b"SUB_ADVANCED @T@ ch 0\n")
    first.message()
    second = subscribe(play, b"SUB_ADVANCED @T@ ch 0\n", name="b")
    second.silence()
    first.close()
    second.message()


@scenario
def every_channel_has_its_copy(play):
    publisher = prepare(play, "one", "two")
    publish(publisher, b"x")
    for channel in (b"one", b"two"):
        subscribe(play, b"SUB_ADVANCED @T@ %s 0\n" % channel).message()


@scenario
def a_paused_channel(play):
    publisher = prepare(play, "ch")
    client = subscribe(play, b"SUB_ADVANCED @T@ ch 0\n", 10)
    play.http("POST", "/channel/pause?topic=@T@&partition=0&channel=ch")
    publish(publisher, b"x")
    client.silence()
    play.http("POST", "/channel/unpause?topic=@T@&partition=0&channel=ch")
    client.message()


@scenario
def a_deleted_channel_ends_its_consumers(play):
    prepare(play, "ch")
    client = subscribe(play, b"SUB_ADVANCED @T@ ch 0\n")
    play.http("POST", "/channel/delete?topic=@T@&partition=0&channel=ch")
    client.closed()


@scenario
def identifying(play):
    for document in (
        {},
        {"heartbeat_interval": 1000, "output_buffer_size": 64, "output_buffer_timeout": 5},
        {"heartbeat_interval": -1},
        {"msg_timeout": 1000, "sample_rate": 50},
        {"msg_timeout": 900001},
        {"heartbeat_interval": 999},
        {"sample_rate": 100},
        {"deflate": True, "snappy": True},
        {"desired_tag": "t" * 101},
        {"desired_tag": "tag", "extend_support": True},
        {"feature_negotiation": False},
        {"heartbeat_interval": "x"},
    ):
        identify(play.connect(), **document)


@scenario
def unknown_commands(play):
    for line in (b"HELLO\n", b"\n", b"pub t\n", b"DPUB t 1\n", b"SUB_ORDER t ch\n"):
        client = play.connect()
        client.ask(line)
        client.closed()


scenario(commands_before_a_subscription)


@scenario
def publishing_by_http(play):
    prepare(play, "ch")
    play.http("POST", "/pub?topic=@T@&partition=0", b"one")
    play.http("POST", "/pub?topic=@T@", b"two")
    play.http("POST", "/mpub?topic=@T@&partition=0", b"three\nfour\n")
    subscribe(play, b"SUB_ADVANCED @T@ ch 0\n", 10).expect(4)
    for path, body in (
        ("/pub?topic=@T@&partition=1", b"x"),
        ("/pub?topic=absent", b"x"),
        ("/pub?topic=@T@", b""),
        ("/topic/create?topic=@T@", b""),
        ("/channel/create?topic=absent&channel=ch", b""),
        ("/channel/create?topic=@T@&partition=0", b""),
        ("/nothing", b""),
    ):
        play.http("POST", path, body)


@scenario
def documents_have_the_same_shape(play):
    publish(prepare(play, "ch"), b"x")
    subscribe(play, b"SUB_ADVANCED @T@ ch 0\n").message()
    for path in (
        "/info",
        "/stats?format=json&topic=@T@",
        "/stats?format=json&topic=@T@&needClients=true",
        "/stats?format=json&topic=@T@&leaderOnly=true",
        "/stats?format=json&topic=absent",
    ):
        play.http("GET", path, shape=True)


@scenario
def cls_ends_deliveries(play):
    publish(prepare(play, "ch"), b"1", b"2")
    client = subscribe(play, b"SUB_ADVANCED @T@ ch 0\n")
    message = client.message()
    client.ask(b"CLS\n")
    client.send(commands.fin(message.id) + commands.rdy(2))
    client.silence()


@scenario
def positions_can_be_set(play):
    publish(prepare(play, "ch"), b"1", b"2")
    for body in (b"special:-1", b"special:0", b"virtual_queue:0", b"x", b""):
        play.http("POST", "/channel/setoffset?topic=@T@&partition=0&channel=ch", body)


@scenario
def a_skipped_channel_takes_everything_for_done(play):
    publisher = prepare(play, "ch")
    play.http("POST", "/channel/skip?topic=@T@&partition=0&channel=ch")
    publish(publisher, b"1")
    client = subscribe(play, b"SUB_ADVANCED @T@ ch 0\n")
    client.silence()
    play.http("POST", "/channel/unskip?topic=@T@&partition=0&channel=ch")
    publish(publisher, b"2")
    client.message()


def receipt(play: Player, publisher: Connection) -> None:
    """Write down a receipt: trace id, offset, size; internal ids differ by nature."""
    play.note("publisher receipt", *publisher.receipt())
