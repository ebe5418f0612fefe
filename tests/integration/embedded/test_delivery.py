"""What a subscribed connection is sent, and what becomes of its messages."""

from __future__ import annotations

import time

import pytest

from nsqsmart.embedded import Cluster
from nsqsmart.wire import commands
from nsqsmart.wire.frames import CLOSE_WAIT
from nsqsmart.wire.messages import internal_id, partition_of
from tests.helpers import eventually


def topic(cluster: Cluster, **options: object) -> object:
    cluster.create_topic("t", **options)
    cluster.create_channel("t", "c")
    return cluster.leader("t", 0)


def test_a_message_goes_round_in_both_dialects(original, redesigned, connect) -> None:
    for cluster in (original, redesigned):
        nsqd = topic(cluster)
        producer, consumer = connect(nsqd), connect(nsqd)
        consumer.subscribe(commands.sub("t", "c"))
        assert producer.ask(commands.pub("t", b"hello")) == b"OK"
        message = consumer.message()
        assert (message.body, message.attempts) == (b"hello", 1)
        assert abs(message.timestamp - time.time_ns()) < 60e9
        consumer.finish(message)
        assert producer.ask(commands.mpub("t", [b"a", b"b"])) == b"OK"
        bodies = []
        for _ in range(2):
            message = consumer.message()
            bodies.append(message.body)
            consumer.finish(message)
        assert bodies == [b"a", b"b"]
        assert consumer.silent()


def test_ids_have_the_dialects_form(original, redesigned, connect) -> None:
    for cluster, check in (
        (original, lambda message: len(bytes.fromhex(message.id.decode())) == 8),
        (redesigned, lambda message: partition_of(message.id) == 0),
    ):
        nsqd = topic(cluster)
        consumer = connect(nsqd)
        consumer.subscribe(commands.sub("t", "c"))
        assert connect(nsqd).ask(commands.pub("t", b"x")) == b"OK"
        assert check(consumer.message())


def test_ids_of_a_partition_count_from_two_and_hold_its_number(redesigned, connect) -> None:
    redesigned.create_topic("t", partitions=2)
    nsqd = redesigned.leader("t", 1)
    consumer = connect(nsqd)
    consumer.subscribe(commands.sub_advanced("t", "c", 1), 5)
    producer = connect(nsqd)
    receipt = producer.ask(commands.pub_trace("t", b"hello", 7, 1))
    assert receipt == b"OK" + bytes.fromhex(
        "0004000000000002 0000000000000007 0000000000000000 00000023"
    )
    assert producer.ask(commands.pub("t", b"hi", 1)) == b"OK"
    first, second = consumer.message(), consumer.message()
    assert internal_id(second.id) == internal_id(first.id) + 1 == (1 << 50) + 3
    assert (first.offset, first.size, second.offset, second.size) == (0, 35, 35, 32)


def test_rdy_bounds_what_is_in_flight(redesigned, connect) -> None:
    nsqd = topic(redesigned)
    consumer, producer = connect(nsqd), connect(nsqd)
    consumer.subscribe(commands.sub("t", "c"), 2)
    producer.ask(commands.mpub("t", [b"%d" % number for number in range(5)]))
    first, second = consumer.message(), consumer.message()
    assert consumer.silent()
    consumer.finish(first)
    third = consumer.message()
    consumer.send(commands.rdy(0))
    for message in (second, third):
        consumer.finish(message)
    assert consumer.silent()
    consumer.send(commands.rdy(9))
    assert [consumer.message().body for _ in range(2)] == [b"3", b"4"]


def test_a_new_channel_begins_at_the_end_but_the_first_original_one_does_not(
    original, redesigned, connect
) -> None:
    for cluster, backlog in ((original, True), (redesigned, False)):
        cluster.create_topic("t")
        nsqd = cluster.leader("t")
        producer = connect(nsqd)
        producer.ask(commands.pub("t", b"before"))
        first, second = connect(nsqd), connect(nsqd)
        first.subscribe(commands.sub("t", "first"))
        if backlog:
            message = first.message()
            assert message.body == b"before"
            first.finish(message)
        second.subscribe(commands.sub("t", "second"))
        producer.ask(commands.pub("t", b"after"))
        assert first.message().body == second.message().body == b"after"


def test_requeue_counts_attempts_and_a_delay_is_kept(original, redesigned, connect) -> None:
    for cluster in (original, redesigned):
        nsqd = topic(cluster)
        consumer = connect(nsqd)
        consumer.subscribe(commands.sub("t", "c"))
        connect(nsqd).ask(commands.pub("t", b"x"))
        message = consumer.message()
        consumer.send(commands.req(message.id, 0))
        again = consumer.message()
        assert (again.attempts, again.id) == (2, message.id)
        asked = time.monotonic()
        consumer.send(commands.req(again.id, 100))
        assert consumer.message().attempts == 3
        assert time.monotonic() - asked >= 0.1


def test_who_answers_a_deferred_message_is_told_why_not(original, redesigned, connect) -> None:
    for cluster, reason in (
        (original, "ID not in flight"),
        (redesigned, "client does not own message : 0 vs "),
    ):
        nsqd = topic(cluster)
        consumer = connect(nsqd)
        consumer.subscribe(commands.sub("t", "c"))
        connect(nsqd).ask(commands.pub("t", b"x"))
        message = consumer.message()
        consumer.send(commands.req(message.id, 60_000))
        text = consumer.refused(commands.fin(message.id))
        assert text.startswith("E_FIN_FAILED FIN ")
        assert reason in text
        text = consumer.refused(commands.touch(message.id))
        assert text.startswith("E_TOUCH_FAILED TOUCH ")


def test_a_message_times_out_and_touch_prevents_it(connect) -> None:
    with Cluster(msg_timeout=1) as cluster:
        nsqd = topic(cluster)
        consumer = connect(nsqd)
        consumer.subscribe(commands.sub("t", "c"))
        connect(nsqd).ask(commands.pub("t", b"x"))
        delivered = time.monotonic()
        message = consumer.message()
        for _ in range(4):
            consumer.silent(0.1)
            consumer.send(commands.touch(message.id))
        again = consumer.message()
        assert again.attempts == 2
        assert time.monotonic() - delivered >= 1.3
        assert "not in flight" in consumer.refused(commands.fin(b"\x00" * 7 + b"\x09" * 9))


def test_a_lost_connection_gives_back_at_once_or_waits(original, redesigned, connect) -> None:
    for cluster, attempts in ((original, 2), (redesigned, 1)):
        nsqd = topic(cluster)
        lost, other = connect(nsqd), connect(nsqd)
        # Given back at once it comes although its time is a minute.
        lost.identify(**({"msg_timeout": 1000} if cluster is original else {}))
        lost.subscribe(commands.sub("t", "c"))
        began = time.monotonic()
        connect(nsqd).ask(commands.pub("t", b"x"))
        lost.message()
        other.subscribe(commands.sub("t", "c"))
        lost.close()
        assert other.message().attempts == attempts
        assert cluster is redesigned or time.monotonic() - began >= 0.9


def test_cls_ends_deliveries_and_lets_answers_through(redesigned, connect) -> None:
    nsqd = topic(redesigned)
    consumer, producer = connect(nsqd), connect(nsqd)
    consumer.subscribe(commands.sub("t", "c"), 5)
    producer.ask(commands.pub("t", b"x"))
    message = consumer.message()
    assert consumer.ask(commands.CLS) == CLOSE_WAIT
    producer.ask(commands.pub("t", b"y"))
    consumer.finish(message)
    consumer.send(commands.rdy(5))
    assert consumer.silent()
    assert consumer.refused(commands.CLS) == "E_INVALID cannot CLS in current state"
    assert consumer.ended()


def test_an_ordered_channel_has_one_message_out_over_all_connections(redesigned, connect) -> None:
    nsqd = topic(redesigned, ordered=True)
    consumers = [connect(nsqd) for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe(commands.sub_ordered("t", "c", 0), 10)
    producer = connect(nsqd)
    for number in range(4):
        assert producer.ask(commands.pub("t", b"%d" % number, 0)) == b"OK"
    seen = []
    for _ in range(4):
        holder = eventually(
            lambda: next((each for each in consumers if not each.silent(0.02)), None)
        )
        message = holder.message()
        seen.append(message.body)
        assert all(each.silent(0.05) for each in consumers)
        holder.finish(message)
    assert seen == [b"0", b"1", b"2", b"3"]


def test_an_ordered_channel_swallows_delays_and_repeats_at_once(redesigned, connect) -> None:
    nsqd = topic(redesigned, ordered=True)
    consumer = connect(nsqd)
    consumer.subscribe(commands.sub_ordered("t", "c", 0), 10)
    connect(nsqd).ask(commands.mpub("t", [b"a", b"b"], 0))
    message = consumer.message()
    consumer.send(commands.req(message.id, 50))
    assert consumer.silent(0.15)
    consumer.send(commands.req(message.id, 0))
    again = consumer.message()
    assert (again.body, again.attempts) == (b"a", 2)
    consumer.finish(again)
    assert consumer.message().body == b"b"


def test_tags_choose_the_consumer(redesigned, connect) -> None:
    nsqd = topic(redesigned, extend_support=True)
    red, plain = connect(nsqd), connect(nsqd)
    red.identify(extend_support=True, desired_tag="red")
    plain.identify(extend_support=True)
    for consumer in (red, plain):
        consumer.subscribe(commands.sub_advanced("t", "c", 0), 10, extended=True)
    producer = connect(nsqd)
    for tag in (b"red", b"blue", b"red"):
        header = b'{"##client_dispatch_tag":"' + tag + b'"}'
        assert producer.ask(commands.pub_ext("t", tag, header, 0)) == b"OK"
    producer.ask(commands.pub("t", b"none", 0))
    assert [red.message().body for _ in range(2)] == [b"red", b"red"]
    assert [plain.message().body for _ in range(2)] == [b"blue", b"none"]
    assert red.silent()
    red.close()
    # The consumer that is left gets what is tagged for no consumer.
    assert [plain.message().body for _ in range(2)] == [b"red", b"red"]


def test_a_filter_finishes_what_does_not_match(redesigned, connect) -> None:
    nsqd = topic(redesigned, extend_support=True)
    consumer = connect(nsqd)
    rule = {"type": 1, "filter_ext_key": "kind", "filter_data": "a"}
    consumer.identify(extend_support=True, ext_filter=rule)
    consumer.subscribe(commands.sub("t", "c", 0), 10, extended=True)
    producer = connect(nsqd)
    for kind in (b"a", b"b", b"a"):
        producer.ask(commands.pub_ext("t", kind, b'{"kind":"' + kind + b'"}', 0))
    bodies = [consumer.message().body for _ in range(2)]
    assert bodies == [b"a", b"a"]
    assert consumer.silent()


def test_dpub_is_delivered_later(original, connect) -> None:
    nsqd = topic(original)
    consumer = connect(nsqd)
    consumer.subscribe(commands.sub("t", "c"))
    asked = time.monotonic()
    assert connect(nsqd).ask(commands.dpub("t", b"later", 150)) == b"OK"
    message = consumer.message()
    assert (message.body, message.attempts) == (b"later", 1)
    assert time.monotonic() - asked >= 0.15


def test_an_ephemeral_channel_goes_with_its_last_consumer(original, connect) -> None:
    nsqd = topic(original)
    consumer = connect(nsqd)
    consumer.subscribe(commands.sub("t", "c#ephemeral"))
    shard = original._backend._topics[nsqd].find("t")
    assert "c#ephemeral" in shard.partition.channels
    consumer.close()
    eventually(lambda: "c#ephemeral" not in shard.partition.channels)


@pytest.mark.parametrize(("dialect", "beats"), [("original", 2), ("redesigned", 3)])
def test_a_silent_client_is_dropped_after_so_many_heartbeats(dialect, beats, connect) -> None:
    with Cluster(dialect=dialect) as cluster:
        connection = connect(cluster.nsqds[0])
        connection.identify(heartbeat_interval=1000)
        began = time.monotonic()
        frames = 0
        while connection.any_frame() is not None:
            frames += 1
        assert beats - 0.3 < time.monotonic() - began < beats + 5
        assert beats - 1 <= frames <= beats


def test_a_client_that_does_not_read_delays_nobody(connect) -> None:
    with Cluster(client_timeout=2) as cluster:
        nsqd = topic(cluster)
        deaf, other = connect(nsqd), connect(nsqd)
        deaf.subscribe(commands.sub("t", "deaf"), 2500)
        other.subscribe(commands.sub("t", "c"), 10)
        producer = connect(nsqd)
        body = b"x" * 500_000
        for _ in range(40):
            assert producer.ask(commands.pub("t", body)) == b"OK"
            message = other.message()
            assert len(message.body) == len(body)
            other.finish(message)
