"""Which server gets which request, in either dialect, to change a topic or a channel."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from nsqsmart.errors import (
    AdminError,
    ConfigError,
    NotSupported,
    TopicNotExist,
)
from tests.scripted import (
    KEY_NOT_FOUND,
    NO_CHANNEL,
    NO_TOPIC,
    OK,
    SILENCE,
    World,
    scripted,
)


@pytest.fixture
def redesigned() -> Iterator[World]:
    with scripted("redesigned") as world:
        yield world


@pytest.fixture
def original() -> Iterator[World]:
    with scripted("original") as world:
        yield world


# ---------------------------------------------------------------------------------- positions


def test_a_position_goes_to_one_partition(redesigned):
    redesigned.everywhere("/lookup", redesigned.led(0, 1))
    redesigned.nsqds[1].say("/channel/setoffset", OK)
    admin = redesigned.admin()
    for position in (62, "end", datetime(2024, 1, 1, tzinfo=UTC)):
        admin.set_offset("t", "c", 1, position)
    bodies = [asked.body for asked in redesigned.requests if asked.method == "POST"]
    assert bodies == [b"virtual_queue:62", b"special:-1", b"timestamp:1704067200"]
    assert redesigned.posts() == ["n11"] * 3


def test_a_partition_that_there_is_not(redesigned):
    redesigned.everywhere("/lookup", redesigned.led(0, 1))
    with pytest.raises(ConfigError, match="topic 't' has 2 partitions, no 2"):
        redesigned.admin().set_offset("t", "c", 2, "end")
    assert redesigned.posts() == []


@pytest.mark.parametrize("on", [True, False])
def test_order_is_set_on_every_partition(redesigned, on):
    redesigned.everywhere("/lookup", redesigned.led(0, 1))
    for nsqd in redesigned.nsqds:
        nsqd.say("/channel/setorder", OK)
    redesigned.admin().set_order("t", "c", on)
    posts = [asked for asked in redesigned.requests if asked.method == "POST"]
    assert [asked.query["order"] for asked in posts] == [str(on).lower()] * 2


# ------------------------------------------------------------------ topics of a redesigned cluster


def test_a_lookup_that_refuses_has_decided(redesigned):
    text = "ErrType:9 ErrCode:1 : No node is available for topic"
    redesigned.lookups[0].say("/topic/create", (400, {"message": text}))
    with pytest.raises(AdminError, match="No node is available"):
        redesigned.admin().create_topic("t", replicas=5)
    assert redesigned.posts() == ["l0"]


def test_a_topic_that_is_there_is_fine_if_it_is_the_one(redesigned):
    redesigned.everywhere("/lookup", redesigned.led(0, 1, meta={"ordered": True}))
    redesigned.everywhere("/topic/create", (400, {"message": "already exist"}))
    redesigned.admin().create_topic("t", 2, ordered=True)
    with pytest.raises(AdminError, match="is there already.*partitions=2, replicas=1, ordered=T"):
        redesigned.admin().create_topic("t", 3, ordered=True)


def test_a_topic_is_deleted_with_all_its_partitions(redesigned):
    redesigned.lookups[0].say("/topic/delete", OK)
    redesigned.admin().delete_topic("t")
    assert redesigned.requests[-1].query == {"topic": "t", "partition": "**"}
    redesigned.lookups[0].say("/topic/delete", KEY_NOT_FOUND)
    with pytest.raises(TopicNotExist):
        redesigned.admin().delete_topic("t")


@pytest.mark.parametrize("verb", ["pause", "unpause", "empty"])
def test_redesigned_topics_are_not_paused(redesigned, verb):
    with pytest.raises(NotSupported, match=f"cannot {verb} a topic; {verb} its channels"):
        getattr(redesigned.admin(), f"{verb}_topic")("t")
    assert redesigned.posts() == []


def test_lookups_make_the_channels_where_nsqds_may_not(redesigned):
    fixed = {"disable_channel_auto_create": True}
    redesigned.leads(1)
    redesigned.everywhere("/lookup", redesigned.led(0, meta=fixed))
    registered = (400, {"message": "channel c already registered"})
    redesigned.lookups[1].say("/channel/create", OK, registered)
    redesigned.lookups[1].say("/channel/delete", (400, {"message": "channel c not registered"}))
    admin = redesigned.admin()
    admin.create_channel("t", "c")
    admin.create_channel("t", "c")
    admin.delete_channel("t", "c")
    assert redesigned.posts() == ["l1"] * 3
    redesigned.lookups[1].say("/channel/create", KEY_NOT_FOUND)
    with pytest.raises(TopicNotExist):
        admin.create_channel("t", "c")


# --------------------------------------------------------------------------- original clusters


def test_an_original_topic_is_made_everywhere(original):
    for server in (*original.lookups, *original.nsqds):
        server.say("/topic/create", OK)
    original.admin().create_topic("t")
    assert original.posts() == ["n0", "n1", "l0", "l1"]
    assert original.requests[-1].query == {"topic": "t"}


def test_an_nsqd_without_the_new_topic_is_an_error(original):
    for server in (*original.lookups, original.nsqds[0]):
        server.say("/topic/create", OK)
    original.nsqds[1].say("/topic/create", SILENCE)
    with pytest.raises(AdminError) as caught:
        original.admin(response_timeout=0.5).create_topic("t")
    assert [each.node for each in caught.value.failed] == ["127.0.0.1:4151"]
    assert len(caught.value.done) == 3


@pytest.mark.parametrize(
    "settings", [{"partitions": 2}, {"replicas": 2}, {"ordered": True}, {"extend_support": True}]
)
def test_original_topics_have_no_settings(original, settings):
    with pytest.raises(NotSupported, match=next(iter(settings))):
        original.admin().create_topic("t", **settings)
    assert original.posts() == []


def test_an_original_topic_is_forgotten_before_it_is_deleted(original):
    original.lists_nodes("t")
    for server in (*original.lookups, original.nsqds[0]):
        server.say("/topic/delete", OK)
    original.nsqds[1].say("/topic/delete", NO_TOPIC)
    original.admin().delete_topic("t")
    assert original.posts() == ["l0", "l1", "n0", "n1"]
    # Afterwards no lookup would name the nsqds that have it.
    order = [asked.path for asked in original.requests]
    assert order.index("/nodes") < order.index("/topic/delete")


def test_an_original_topic_that_nobody_has(original):
    for server in (*original.lookups, *original.nsqds):
        server.say("/topic/delete", OK if server in original.lookups else NO_TOPIC)
        server.say("/topic/pause", NO_TOPIC)
    admin = original.admin()
    for change in (admin.delete_topic, admin.pause_topic):
        with pytest.raises(TopicNotExist):
            change("t")


def test_nsqds_without_the_topic_have_nothing_to_do(original):
    original.lists_nodes("t")
    original.nsqds[0].say("/channel/pause", OK)
    original.nsqds[1].say("/channel/pause", NO_TOPIC)
    original.admin().pause_channel("t", "c")
    # Nor does one that says nothing, as long as no lookup knows it to have the topic.
    original.nsqds[1].say("/channel/pause", SILENCE)
    original.admin(response_timeout=0.5).pause_channel("t", "c")
    original.nsqds[0].say("/channel/pause", SILENCE)
    with pytest.raises(AdminError, match="127.0.0.1:4150"):
        original.admin(response_timeout=0.5).pause_channel("t", "c")


def test_a_topic_that_only_lookups_know_gets_its_channels_from_them(original):
    original.everywhere("/topics", (200, {"topics": ["t"]}))
    original.everywhere("/channel/create", OK)
    for nsqd in original.nsqds:
        nsqd.say("/channel/create", NO_TOPIC)
    original.admin().create_channel("t", "c")
    assert sorted(original.posts()) == ["l0", "l1", "n0", "n1"]
    original.everywhere("/topics", (200, {"topics": []}))
    with pytest.raises(TopicNotExist):
        original.admin().create_channel("t", "c")


def test_a_channel_may_be_gone_from_some_or_all(original):
    original.lists_nodes("t")
    for server in (*original.lookups, *original.nsqds):
        server.say("/channel/delete", NO_CHANNEL)
    original.nsqds[1].say("/channel/delete", NO_TOPIC)
    original.admin().delete_channel("t", "c")
    assert original.posts() == ["l0", "l1", "n0", "n1"]
    original.nsqds[0].say("/channel/delete", NO_TOPIC)
    original.everywhere("/topics", (200, {"topics": []}))
    with pytest.raises(TopicNotExist):
        original.admin().delete_channel("t", "c")


def test_original_channels_have_neither_offsets_nor_order(original):
    admin = original.admin()
    with pytest.raises(NotSupported, match="offsets"):
        admin.set_offset("t", "c", 0, "end")
    with pytest.raises(NotSupported, match="order"):
        admin.set_order("t", "c", True)
