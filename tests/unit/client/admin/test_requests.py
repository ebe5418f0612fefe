"""Leaders and lookups that move, refuse and say nothing, and what an Admin does about it."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

import pytest

import nsqsmart
from nsqsmart.errors import (
    AdminError,
    TopicNotExist,
)
from nsqsmart.policy.answers.lookup import TopicState
from tests.scripted import (
    HA,
    IO,
    KEY_NOT_FOUND,
    NO_CHANNEL,
    NOT_LEADER,
    OK,
    QUICK,
    SILENCE,
    World,
    scripted,
)


@pytest.fixture
def redesigned() -> Iterator[World]:
    with scripted("redesigned") as world:
        yield world


# ------------------------------------------------------------------------ leaders of partitions


def test_each_leader_is_told_of_its_partition(redesigned):
    redesigned.everywhere("/lookup", redesigned.led(0, 1, 0))
    for nsqd in redesigned.nsqds:
        nsqd.say("/channel/pause", OK)
    redesigned.admin().pause_channel("t", "c#ephemeral")
    assert sorted(redesigned.posts()) == ["n00", "n02", "n11"]
    posts = [asked for asked in redesigned.requests if asked.method == "POST"]
    assert {asked.path for asked in posts} == {"/channel/pause"}
    assert posts[0].query == {"topic": "t", "channel": "c#ephemeral", "partition": "0"}


def test_whoever_leads_by_now_is_asked_and_leaderless_twice_for_the_same(redesigned):
    redesigned.everywhere("/lookup", redesigned.led(0, 0), redesigned.led(0, 1))
    redesigned.nsqds[0].say("/channel/create", OK, NOT_LEADER)
    redesigned.nsqds[1].say("/channel/create", OK)
    redesigned.admin().create_channel("t", "c")
    assert redesigned.posts() == ["n00", "n01", "n11"]


def test_a_leader_that_is_missing_is_waited_for(redesigned):
    redesigned.everywhere(
        "/lookup", redesigned.led(0, None), redesigned.led(0, None), redesigned.led(0, 1)
    )
    for nsqd in redesigned.nsqds:
        nsqd.say("/channel/create", OK)
    redesigned.admin().create_channel("t", "c")
    assert redesigned.posts() == ["n00", "n11"]


def test_a_leader_that_is_dead_is_waited_for_until_there_is_another(redesigned):
    dead = redesigned.entry(0, HA, http_port=1)
    both = {"meta": {"partition_num": 1}, "partitions": {"0": dead}, "producers": []}
    redesigned.everywhere("/lookup", (200, both), redesigned.led(1))
    redesigned.nsqds[1].say("/channel/empty", OK)
    redesigned.admin().empty_channel("t", "c")
    assert redesigned.posts() == ["n10"]


def test_a_leader_that_was_wrong_is_not_asked_while_lookups_name_leaderless(redesigned):
    leaderless = redesigned.led(None)
    redesigned.everywhere("/lookup", redesigned.led(0), leaderless, leaderless, redesigned.led(1))
    redesigned.nsqds[0].say("/channel/create", NOT_LEADER)
    redesigned.nsqds[1].say("/channel/create", OK)
    redesigned.admin().create_channel("t", "c")
    assert redesigned.posts() == ["n00", "n10"]


def test_time_ends_the_wait_and_the_error_says_where_it_was_done(redesigned):
    redesigned.everywhere("/lookup", redesigned.led(0, None, 1))
    redesigned.nsqds[0].say("/channel/pause", OK)
    redesigned.nsqds[1].say("/channel/pause", NOT_LEADER)
    with pytest.raises(AdminError) as caught:
        redesigned.admin(admin_timeout=1).pause_channel("t", "c")
    error = caught.value
    assert [each[:3] for each in error.done] == [("127.0.0.1:4150", 0, True)]
    assert {(each.node, each.partition, each.detail) for each in error.failed} == {
        ("", 1, "it has no leader"),
        ("127.0.0.1:4151", 2, "400 E_FAILED_ON_NOT_LEADER"),
    }
    assert "partition 1 (it has no leader)" in str(error)


def test_a_refusal_for_good_ends_the_wait_for_others(redesigned):
    redesigned.everywhere("/lookup", redesigned.led(0, None))
    redesigned.nsqds[0].say("/channel/pause", NO_CHANNEL)
    started = monotonic()
    with pytest.raises(AdminError, match="CHANNEL_NOT_FOUND"):
        redesigned.admin(admin_timeout=60).pause_channel("t", "none")
    assert monotonic() - started < 30


def test_an_original_nsqd_beside_redesigned_ones_gets_no_partition(redesigned):
    answer = redesigned.led(0)
    answer[1]["producers"] = [redesigned.entry(1, IO)]
    redesigned.everywhere("/lookup", answer)
    for nsqd in redesigned.nsqds:
        nsqd.say("/channel/create", OK)
    redesigned.admin().create_channel("t", "c")
    assert redesigned.posts() == ["n00", "n1"]


def test_a_topic_that_no_lookup_knows(redesigned):
    redesigned.everywhere("/lookup", redesigned.led())
    admin = redesigned.admin()
    for change in (admin.create_channel, admin.delete_channel, admin.pause_channel):
        with pytest.raises(TopicNotExist, match="there is no topic 't'"):
            change("t", "c")
    assert redesigned.posts() == []
    assert admin.topology("t").state is TopicState.UNKNOWN


# ---------------------------------------------------------------------------- the leading lookup


def test_the_leading_lookup_makes_topics(redesigned):
    redesigned.leads(1)
    redesigned.lookups[1].say("/topic/create", OK)
    redesigned.admin().create_topic("t", 2, replicas=3, ordered=True, extend_support=True)
    assert redesigned.posts() == ["l1"]
    assert redesigned.requests[-1].query == {
        "topic": "t",
        "partition_num": "2",
        "replicator": "3",
        "orderedmulti": "true",
        "extend": "true",
    }


def test_another_lookup_may_lead_by_now(redesigned):
    redesigned.lookups[0].say("/topic/create", NOT_LEADER)
    redesigned.lookups[1].say("/topic/create", NOT_LEADER, NOT_LEADER, OK)
    redesigned.admin().create_topic("t")
    assert redesigned.posts() == ["l0", "l1", "l0", "l1", "l0", "l1"]


def test_a_lookup_that_the_policy_refuses_is_asked_nothing(redesigned):
    """The seed names it, as the leading one."""
    redesigned.leads(1)
    redesigned.everywhere("/topic/delete", OK)
    refused = redesigned.lookups[1].port
    url = f"nsq+lookupd://127.0.0.1:{redesigned.lookups[0].port}"
    policy = {"address_policy": lambda address: address.port != refused}
    nsqsmart.Admin(url, **QUICK, **policy).delete_topic("t")
    assert {asked.server for asked in redesigned.requests} == {"l0"}


def test_no_lookup_leads_in_time(redesigned):
    redesigned.everywhere("/topic/create", NOT_LEADER)
    with pytest.raises(AdminError, match="E_FAILED_ON_NOT_LEADER.*done nowhere") as caught:
        redesigned.admin(admin_timeout=1).create_topic("t")
    named = {f"nsqlookupd 127.0.0.1:{each.port}" for each in redesigned.lookups}
    assert {each.node for each in caught.value.failed} == named


def test_what_an_unanswered_delete_has_done_is_done(redesigned):
    redesigned.lookups[0].say("/topic/delete", SILENCE, KEY_NOT_FOUND)
    redesigned.lookups[1].say("/topic/delete", NOT_LEADER)
    redesigned.admin(response_timeout=0.5).delete_topic("t")
    assert redesigned.posts() == ["l0", "l1", "l0"]


def test_a_lookup_that_is_dead_has_deleted_nothing(redesigned):
    redesigned.leads(1)
    redesigned.lookups[1].peer.__exit__()
    redesigned.lookups[0].say("/topic/delete", NOT_LEADER, KEY_NOT_FOUND)
    with pytest.raises(TopicNotExist):
        redesigned.admin().delete_topic("t")


def test_silence_does_not_hide_what_was_said_before(redesigned):
    redesigned.everywhere("/topic/create", NOT_LEADER, SILENCE)
    with pytest.raises(AdminError) as caught:
        redesigned.admin(admin_timeout=1.5, response_timeout=0.5).create_topic("t")
    assert {each.detail for each in caught.value.failed} == {"400 E_FAILED_ON_NOT_LEADER"}


def test_a_lookup_that_leads_from_now_on_is_found(redesigned):
    first = f"127.0.0.1:{redesigned.lookups[0].port}"
    known = redesigned.lookups[0].answers["/listlookup"][0]
    alone = (200, {"lookupdleader": None, "lookupdnodes": []})
    redesigned.lookups[0].say("/listlookup", alone, (500, {"message": "Raft is down"}), known)
    redesigned.lookups[0].say("/topic/create", NOT_LEADER)
    redesigned.lookups[1].say("/topic/create", OK)
    nsqsmart.Admin(f"nsq+lookupd://{first}", **QUICK).create_topic("t")
    assert redesigned.posts() == ["l0", "l0", "l0", "l1"]
