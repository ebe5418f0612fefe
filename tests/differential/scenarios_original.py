"""What an original nsqd is asked; @T@ stands for a topic of the scenario's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from nsqsmart.wire import commands
from tests.differential.player import Connection, Player

Scenario = Callable[[Player], None]
SCENARIOS: dict[str, Scenario] = {}
T = "@T@"


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def publish(play: Player, *bodies: bytes) -> None:
    publisher = play.connect("publisher")
    for body in bodies:
        publisher.ask(commands.pub(T, body))


def consumer(play: Player, rdy: int = 1, name: str = "a", channel: str = "ch") -> Connection:
    connection = play.connect(name)
    connection.ask(commands.sub(T, channel))
    connection.send(commands.rdy(rdy))
    return connection


def identify(connection: Connection, **document: Any) -> None:
    body = json.dumps({"feature_negotiation": True, **document}).encode()
    connection.ask(commands.identify(body))


@scenario
def publish_and_consume(play):
    publish(play, b"one", b"two")
    client = consumer(play, 2)
    for message in client.expect(2):
        client.send(commands.fin(message.id))
    client.silence()
    stats(play)


@scenario
def a_message_that_is_requeued_comes_again(play):
    publish(play, b"x")
    client = consumer(play)
    for _ in range(3):
        message = client.message()
        client.send(commands.req(message.id, 0))
    client.send(commands.fin(client.message().id))
    client.silence()
    stats(play)


@scenario
def a_delayed_requeue_is_deferred(play):
    publish(play, b"x")
    client = consumer(play)
    client.send(commands.req(client.message().id, 600))
    client.silence()
    stats(play)
    client.message()


@scenario
def a_message_in_flight_too_long_comes_again_and_is_not_mine_any_more(play):
    publish(play, b"x")
    client = play.connect()
    identify(client, msg_timeout=1000)
    client.ask(commands.sub(T, "ch"))
    client.send(commands.rdy(1))
    first = client.message()
    again = client.message()
    client.send(commands.fin(first.id))
    client.ask(commands.touch(again.id))
    stats(play)


@scenario
def touch_holds_a_message(play):
    publish(play, b"x")
    client = play.connect()
    identify(client, msg_timeout=1000)
    client.ask(commands.sub(T, "ch"))
    client.send(commands.rdy(1))
    message = client.message()
    for _ in range(3):
        client.silence(0.6)
        client.send(commands.touch(message.id))
    client.send(commands.fin(message.id))
    client.silence(1.5)


@scenario
def rdy_bounds_what_is_in_flight(play):
    publish(play, *(b"%d" % number for number in range(5)))
    client = consumer(play, 2)
    first, second = client.expect(2)
    client.silence()
    client.send(commands.rdy(3))
    client.expect()
    client.silence()
    client.send(commands.rdy(0) + commands.fins([first.id, second.id]))
    client.silence()
    client.send(commands.rdy(5))
    client.expect(2)
    stats(play)


@scenario
def rdy_values_out_of_range(play):
    for value in (b"-1", b"2501", b"x"):
        client = play.connect()
        client.ask(commands.sub(T, "ch"))
        client.ask(b"RDY %s\n" % value)
        client.closed()
    for line in (b"RDY 1 2\n", b"RDY \n"):
        client = play.connect()
        client.ask(commands.sub(T, "ch"))
        client.send(line)
        client.silence()


@scenario
def rdy_without_a_value_is_one(play):
    publish(play, b"1", b"2")
    client = play.connect()
    client.ask(commands.sub(T, "ch"))
    client.send(b"RDY\n")
    client.message()
    client.silence()


@scenario
def ids_that_are_not_in_flight(play):
    client = consumer(play)
    for command in (commands.fin(b"0" * 16), commands.req(b"0" * 16, 0), commands.touch(b"0" * 16)):
        client.ask(command)
    client.silence()


@scenario
def ids_of_the_wrong_length(play):
    for command in (b"FIN 0\n", b"FIN\n", b"REQ 0 0\n", b"TOUCH %s\n" % (b"0" * 17)):
        client = consumer(play)
        client.ask(command)
        client.closed()


@scenario
def requeue_delays_that_make_no_sense(play):
    publish(play, b"x")
    client = consumer(play)
    client.send(commands.req(client.message().id, 3_600_001))
    client.silence()
    stats(play)
    for delay in (b"x", b"-1"):
        client = consumer(play)
        client.ask(b"REQ 0123456789abcdef %s\n" % delay)
        client.closed()


@scenario
def cls_ends_deliveries_and_waits_for_answers(play):
    publish(play, b"1", b"2", b"3")
    client = consumer(play, 1)
    message = client.message()
    client.ask(b"CLS\n")
    client.send(commands.fin(message.id) + commands.rdy(2))
    client.silence()
    client.ask(b"CLS\n")
    client.closed()


@scenario
def subscribing_twice_or_badly(play):
    client = consumer(play)
    client.ask(commands.sub(T, "other"))
    client.closed()
    for line in (b"SUB @T@\n", b"SUB\n", b"SUB @T@ ch$\n", b"SUB @T@. \n", b"SUB $ ch\n"):
        client = play.connect()
        client.ask(line)
        client.closed()


@scenario
def commands_before_a_subscription(play):
    lines = (b"RDY 1\n", b"FIN 0123456789abcdef\n", b"REQ 0123456789abcdef 0\n", b"CLS\n")
    for line in (*lines, b"TOUCH 0123456789abcdef\n"):
        client = play.connect()
        client.ask(line)
        client.closed()


@scenario
def unknown_commands_and_blanks(play):
    for line in (b"HELLO\n", b"\n", b"pub @T@\n", b"NOP extra\nHELLO you\n", b"PUB\n", b"A\r\n"):
        client = play.connect()
        client.ask(line)
        client.closed()


@scenario
def a_nop_is_not_answered(play):
    client = play.connect()
    client.send(commands.NOP * 3)
    client.silence()
    client.ask(commands.pub(T, b"x"))


@scenario
def a_magic_that_is_none(play):
    client = play.connect(magic=b"  V9")
    client.closed()
    client = play.connect(magic=b"GET / HTTP/1.1\r\n\r\n")
    client.closed()


@scenario
def bodies_that_cannot_be(play):
    sizes = (0, 0xFFFFFFFF, 1024 * 1024 + 1)
    for size in sizes:
        client = play.connect()
        client.ask(b"PUB @T@\n" + size.to_bytes(4))
        client.closed()
    client = play.connect()
    client.ask(b"PUB bad$topic\n" + (1).to_bytes(4) + b"x")
    client.closed()


@scenario
def batches_that_cannot_be(play):
    def batch(outer: int, *rest: int) -> bytes:
        return b"MPUB @T@\n" + b"".join(number.to_bytes(4) for number in (outer, *rest))

    for command in (
        batch(0),
        batch(5 * 1024 * 1024 + 1),
        batch(8, 0),
        batch(8, 1, 0),
        batch(13, 1, 0xFFFFFFFF),
        batch(12, 0x7FFFFFFF, 1),
    ):
        client = play.connect()
        client.ask(command)
        client.closed()


@scenario
def a_batch_is_stored_whole(play):
    client = play.connect("publisher")
    client.ask(commands.mpub(T, [b"1", b"22", b"333"]))
    client = consumer(play, 10)
    client.expect(3)
    stats(play)


@scenario
def deferred_publishing(play):
    publisher = play.connect("publisher")
    client = consumer(play)
    publisher.ask(commands.dpub(T, b"later", 600))
    client.silence()
    stats(play)
    client.message()
    for delay in (b"-1", b"3600001", b"x"):
        client = play.connect()
        client.ask(b"DPUB @T@ %s\n" % delay + (1).to_bytes(4) + b"x")
        client.closed()


@scenario
def every_channel_has_its_copy(play):
    for name in ("one", "two"):
        play.connect(name).ask(commands.sub(T, name))
    publish(play, b"x")
    for channel in ("one", "two"):
        consumer(play, 1, f"{channel}-again", channel).message()


@scenario
def a_later_channel_has_what_comes_later(play):
    publish(play, b"old")
    first = consumer(play)
    first.send(commands.fin(first.message().id))
    later = consumer(play, 1, "b", "later")
    later.silence()
    publish(play, b"new")
    later.message()
    first.message()


@scenario
def two_consumers_share(play):
    first, second = consumer(play, 1, "a"), consumer(play, 1, "b")
    publish(play, b"same", b"same")
    first.message()
    second.message()
    first.silence()


@scenario
def what_a_lost_consumer_held_waits_for_its_timeout(play):
    publish(play, b"x")
    first = play.connect()
    identify(first, msg_timeout=1500)
    first.ask(commands.sub(T, "ch"))
    first.send(commands.rdy(1))
    first.message()
    second = consumer(play, 1, "b")
    first.close()
    second.silence(0.8)
    second.message()


@scenario
def a_paused_channel_delivers_nothing(play):
    deliver_after_a_pause(play, "channel", "topic=@T@&channel=ch")


@scenario
def a_paused_topic_gives_its_channels_nothing(play):
    deliver_after_a_pause(play, "topic", "topic=@T@")


def deliver_after_a_pause(play: Player, kind: str, query: str) -> None:
    client = consumer(play, 10)
    play.http("POST", f"/{kind}/pause?{query}")
    publish(play, b"x")
    client.silence()
    stats(play)
    play.http("POST", f"/{kind}/unpause?{query}")
    client.message()


@scenario
def an_emptied_channel_forgets_what_is_in_flight_too(play):
    publish(play, b"1", b"2", b"3")
    client = consumer(play, 1)
    message = client.message()
    play.http("POST", "/channel/empty?topic=@T@&channel=ch")
    stats(play)
    client.ask(commands.fin(message.id))


@scenario
def deleting_ends_the_consumers(play):
    client = consumer(play)
    play.http("POST", "/channel/delete?topic=@T@&channel=ch")
    client.closed()
    client = consumer(play)
    play.http("POST", "/topic/delete?topic=@T@")
    client.closed()
    play.http("POST", "/topic/delete?topic=@T@")
    play.http("POST", "/channel/delete?topic=@T@&channel=ch")


@scenario
def an_ephemeral_channel_goes_with_its_consumer(play):
    client = consumer(play, 1, channel="ch#ephemeral")
    stats(play)
    client.close()
    for _ in range(100):
        _, data = play.ask("GET", "/stats?format=json&topic=@T@")
        if not json.loads(data)["topics"][0]["channels"]:
            break
    stats(play)


@scenario
def publishing_by_http(play):
    play.http("POST", "/topic/create?topic=@T@")
    play.http("POST", "/channel/create?topic=@T@&channel=ch")
    play.http("POST", "/pub?topic=@T@", b"one")
    play.http("POST", "/mpub?topic=@T@", b"two\nthree\n\n")
    play.http("POST", "/mpub?topic=@T@&binary=true", commands.mpub("x", [b"4", b"5"])[11:])
    client = consumer(play, 10)
    client.expect(5)
    play.http("POST", "/pub?topic=@T@&defer=300", b"later")
    client.message()


@scenario
def http_that_is_refused(play):
    for method, path, body in (
        ("POST", "/pub", b"x"),
        ("POST", "/pub?topic=$", b"x"),
        ("POST", "/pub?topic=@T@", b""),
        ("POST", "/pub?topic=@T@&defer=x", b"x"),
        ("POST", "/pub?topic=@T@&defer=3600001", b"x"),
        ("GET", "/pub?topic=@T@", b""),
        ("POST", "/mpub?topic=@T@&binary=true", b"x"),
        ("POST", "/mpub?topic=@T@&binary=x", b"x"),
        ("POST", "/topic/create", b""),
        ("POST", "/topic/create?topic=$", b""),
        ("POST", "/topic/pause?topic=absent", b""),
        ("POST", "/topic/empty?topic=absent", b""),
        ("POST", "/channel/create?topic=@T@", b""),
        ("POST", "/channel/create?topic=absent&channel=ch", b""),
        ("POST", "/channel/pause?topic=absent&channel=ch", b""),
        ("GET", "/nothing", b""),
        ("GET", "/ping", b""),
    ):
        play.http(method, path, body)


@scenario
def documents_have_the_same_shape(play):
    publish(play, b"x")
    consumer(play).message()
    play.http("GET", "/info", shape=True)
    for query in (
        "topic=@T@",
        "topic=absent",
        "topic=@T@&channel=ch",
        "topic=@T@&channel=absent",
        "topic=@T@&include_clients=false",
        "topic=@T@&include_clients=x&include_mem=0",
    ):
        play.http("GET", f"/stats?format=json&{query}", shape=True)


@scenario
def identifying(play):
    for document in (
        {},
        {"heartbeat_interval": 1000, "output_buffer_size": 64, "output_buffer_timeout": 1},
        {"heartbeat_interval": -1, "output_buffer_size": -1, "output_buffer_timeout": -1},
        {"msg_timeout": 1000, "sample_rate": 50},
        {"msg_timeout": 900001},
        {"heartbeat_interval": 999},
        {"heartbeat_interval": 60001},
        {"output_buffer_size": 63},
        {"output_buffer_timeout": 30001},
        {"sample_rate": 100},
        {"sample_rate": -1},
        {"deflate": True, "snappy": True},
        {"feature_negotiation": False},
        {"heartbeat_interval": "x"},
        {"msg_timeout": 1.5},
        {"tls_v1": True},
    ):
        identify(play.connect(), **document)


@scenario
def identifying_twice(play):
    client = play.connect()
    identify(client)
    identify(client, heartbeat_interval=2000)
    client.ask(commands.sub(T, "ch"))
    identify(client)
    client.closed()


@scenario
def a_silent_client_is_dropped_after_two_heartbeats(play):
    client = play.connect()
    identify(client, heartbeat_interval=1000)
    client.heartbeat()
    client.closed()


@scenario
def without_heartbeats_there_is_no_subscription(play):
    client = play.connect()
    identify(client, heartbeat_interval=-1)
    client.ask(commands.sub(T, "ch"))
    client.closed()


def stats(play: Player) -> None:
    """The figures of the topic that are the same everywhere."""
    _, data = play.ask("GET", "/stats?format=json&topic=@T@")
    for topic in json.loads(data)["topics"]:
        play.note("stats", *(f"{name}={topic[name]}" for name in _TOPIC))
        for channel in topic["channels"]:
            play.note("stats", *(f"{name}={channel[name]}" for name in _CHANNEL))


_TOPIC = ("depth", "message_count", "message_bytes", "paused")
_CHANNEL = (
    "channel_name",
    "depth",
    "in_flight_count",
    "deferred_count",
    "message_count",
    "requeue_count",
    "timeout_count",
    "client_count",
    "paused",
)
