"""Statistics of both dialects in one shape."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.errors import DiscoveryError
from nsqsmart.policy.answers.stats import (
    ChannelStats,
    Replicas,
    TopicStats,
    choose,
    parse_in_sync,
    parse_stats,
)

NSQD = "10.0.0.1:4150"
# As the real programs write them, without what is not read.
ORIGINAL_CHANNEL = {
    "channel_name": "c",
    "depth": 5,
    "backend_depth": 2,
    "in_flight_count": 3,
    "deferred_count": 1,
    "message_count": 20,
    "requeue_count": 4,
    "timeout_count": 6,
    "client_count": 7,
    "clients": None,
    "paused": True,
}
ORIGINAL = {
    "topic_name": "t",
    "channels": [ORIGINAL_CHANNEL],
    "depth": 9,
    "backend_depth": 8,
    "message_count": 30,
    "message_bytes": 300,
    "paused": True,
}
REDESIGNED_CHANNEL = {
    "channel_name": "c",
    "backlogs": 2,
    "depth": 5,
    "depth_size": 300,
    "backend_depth": 5,
    "in_flight_count": 3,
    "deferred_count": 1,
    "message_count": 20,
    "requeue_count": 4,
    "timeout_count": 6,
    "clients": None,
    "client_num": 7,
    "paused": False,
    "skipped": True,
}
REDESIGNED = {
    "topic_name": "t",
    "topic_full_name": "t-1",
    "topic_partition": "1",
    "channels": [REDESIGNED_CHANNEL],
    "depth": 900,
    "backend_depth": 900,
    "backend_start": 200,
    "message_count": 20,
    "is_leader": True,
}


def parse(*topics: object) -> list[TopicStats]:
    return parse_stats(200, json.dumps({"topics": topics}).encode(), NSQD)


def test_an_original_topic():
    channel = ChannelStats(
        "c",
        depth=5,
        backend_depth=2,
        unfinished=9,
        in_flight=3,
        deferred=1,
        message_count=20,
        requeue_count=4,
        timeout_count=6,
        clients=7,
        paused=True,
    )
    assert parse(ORIGINAL) == [
        TopicStats(
            "t",
            None,
            NSQD,
            depth=9,
            backend_depth=8,
            message_count=30,
            paused=True,
            channels=(channel,),
        )
    ]


def test_a_partition_of_a_redesigned_topic():
    channel = ChannelStats(
        "c",
        depth=5,
        backend_depth=5,
        unfinished=5,
        in_flight=3,
        deferred=1,
        message_count=20,
        requeue_count=4,
        timeout_count=6,
        clients=7,
        position=600,
        skipped=True,
    )
    assert parse(REDESIGNED) == [
        TopicStats(
            "t",
            1,
            NSQD,
            message_count=20,
            stored_bytes=700,
            log_start=200,
            log_end=900,
            channels=(channel,),
        )
    ]
    assert not parse(REDESIGNED | {"is_leader": False})[0].leader


def test_clients_are_counted_where_a_server_lists_them_all_the_same():
    listed = ORIGINAL_CHANNEL | {"clients": [{}, {}]}
    del listed["client_count"]
    (topic,) = parse(ORIGINAL | {"channels": [listed]})
    assert topic.channels[0].clients == 2


@pytest.mark.parametrize(
    "topic",
    [
        None,
        {},
        ORIGINAL | {"topic_name": "not good"},
        REDESIGNED | {"topic_partition": 1},
        REDESIGNED | {"topic_partition": "x"},
        REDESIGNED | {"topic_partition": "-1"},
        REDESIGNED | {"topic_partition": "\u0661"},
        REDESIGNED | {"topic_partition": "1024"},
        REDESIGNED | {"topic_partition": "9" * 5000},
    ],
)
def test_what_has_no_name_is_left_out(topic):
    assert parse(topic, ORIGINAL) == parse(ORIGINAL)
    assert parse(ORIGINAL | {"channels": [{}, {"channel_name": 3}]})[0].channels == ()


@pytest.mark.parametrize("value", [None, "5", 1.5, -1, True, []])
def test_a_count_that_is_none_is_nothing(value):
    (topic,) = parse(ORIGINAL | {"depth": value, "paused": 1})
    assert (topic.depth, topic.paused) == (0, False)


def test_a_log_that_ends_before_it_begins_has_no_size():
    assert parse(REDESIGNED | {"backend_start": 901})[0].stored_bytes == 0


def test_the_older_envelope_and_no_topics_at_all():
    wrapped = {"status_code": 200, "status_txt": "OK", "data": {"topics": [ORIGINAL]}}
    assert parse_stats(200, json.dumps(wrapped).encode(), NSQD) == parse(ORIGINAL)
    assert parse_stats(200, b'{"topics":null}', NSQD) == []


@pytest.mark.parametrize(
    ("status", "body"), [(403, b'{"message":"TLS_REQUIRED"}'), (200, b"null"), (200, b"")]
)
def test_what_is_no_answer_is_an_error(status, body):
    with pytest.raises(DiscoveryError, match=f"stats answered {status}"):
        parse_stats(status, body, NSQD)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*REDESIGNED, *REDESIGNED_CHANNEL]), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(json_values)
def test_any_document_is_read_or_refused(value):
    assert isinstance(parse(value), list)


# ------------------------------------------------------------------------------------- choosing

CHANNELS = (ChannelStats("c"), ChannelStats("d"))


def copy(nsqd: str, partition: int | None = 0, topic: str = "t", **values) -> TopicStats:
    return TopicStats(topic, partition, nsqd, channels=CHANNELS, **values)


def test_of_several_copies_the_leader_speaks():
    follower = copy("a", leader=False, message_count=9)
    leader = copy("b", message_count=8)
    assert choose([follower, leader]) == choose([leader, follower]) == (leader,)


def test_without_a_leader_the_copy_that_has_most_speaks():
    most, less = (copy(name, leader=False, message_count=n) for name, n in (("a", 9), ("b", 8)))
    assert choose([less, most]) == choose([most, less]) == (most,)


def test_every_original_nsqd_speaks_and_all_is_sorted():
    entries = [copy("b", None), copy("a", None), copy("z", 1), copy("y", 0), copy("x", 0, "s")]
    assert [(each.topic, each.partition, each.nsqd) for each in choose(entries)] == [
        ("s", 0, "x"),
        ("t", None, "a"),
        ("t", None, "b"),
        ("t", 0, "y"),
        ("t", 1, "z"),
    ]


def test_one_topic_or_channel_alone():
    with_c, without = copy("a"), replace(copy("b", 1), channels=())
    entries = [with_c, without, copy("c", topic="u")]
    assert choose(entries, "t") == (with_c, without)
    assert choose(entries, "t", "d") == (replace(with_c, channels=(ChannelStats("d"),)),)
    assert choose(entries, "v") == choose(entries, None, "e") == ()


def test_a_follower_does_not_speak_for_a_leader_without_the_channel():
    leader = replace(copy("a"), channels=())
    assert choose([leader, copy("b", leader=False)], "t", "c") == ()


@pytest.mark.parametrize(
    ("in_flight", "deferred", "waiting"), [(0, 0, 5), (2, 1, 2), (4, 1, 0), (4, 3, 0)]
)
def test_what_waits_is_neither_in_flight_nor_put_off(
    in_flight: int, deferred: int, waiting: int
) -> None:
    """The figures of a server are not of one moment: fewer than none do not wait."""
    stats = ChannelStats("c", unfinished=5, in_flight=in_flight, deferred=deferred)
    assert stats.waiting == waiting


MEMBER = {"hostname": "", "node_id": "127.0.0.1:4152:4150:1"}


def coordinated(name="orders", partition=0, members=2):
    return {"name": name, "partition": partition, "isr_stats": [MEMBER] * members}


def in_sync(document, status=200):
    return parse_in_sync(status, json.dumps(document).encode(), "orders", 0)


@pytest.mark.parametrize(
    ("stats", "count"),
    [
        ([coordinated()], 2),
        (
            [
                coordinated(partition=1, members=3),
                coordinated(name="bills", members=3),
                coordinated(members=1),
            ],
            1,
        ),
        ([coordinated(partition=1)], None),
        ([], None),
        (None, None),
        ([{"name": "orders", "partition": 0, "isr_stats": None}], 0),
        (["orders", 7], None),
    ],
)
def test_members_are_counted(stats, count):
    assert in_sync({"topic_coord_stats": stats}) == count


def test_a_server_without_a_coordinator_does_not_tell():
    assert in_sync({"message": "Coordinator is disabled."}, 500) is None
    assert in_sync({"message": "NOT_FOUND"}, 404) is None


@given(st.binary(max_size=200))
def test_no_answer_does_harm(body):
    try:
        found = parse_in_sync(200, body, "orders", 0)
    except DiscoveryError:
        return
    assert found is None or isinstance(found, int)


@pytest.mark.parametrize(("in_sync", "complete"), [(3, True), (None, True), (2, False), (0, False)])
def test_complete(in_sync, complete):
    assert Replicas(0, "h:4150", 3, in_sync).complete is complete
