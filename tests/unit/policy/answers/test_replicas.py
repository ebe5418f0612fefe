"""What a leader says of its replicas: everything comes from a peer, and may be anything."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.errors import DiscoveryError
from nsqsmart.policy.answers.replicas import Replicas, parse_in_sync

MEMBER = {"hostname": "", "node_id": "127.0.0.1:4152:4150:1"}


def entry(name="orders", partition=0, members=2):
    return {"name": name, "partition": partition, "isr_stats": [MEMBER] * members}


def read(document, status=200):
    return parse_in_sync(status, json.dumps(document).encode(), "orders", 0)


@pytest.mark.parametrize(
    ("stats", "count"),
    [
        ([entry()], 2),
        ([entry(partition=1, members=3), entry(name="bills", members=3), entry(members=1)], 1),
        ([entry(partition=1)], None),
        ([], None),
        (None, None),
        ([{"name": "orders", "partition": 0, "isr_stats": None}], 0),
        (["orders", 7], None),
    ],
)
def test_members_are_counted(stats, count):
    assert read({"topic_coord_stats": stats}) == count


def test_a_server_without_a_coordinator_does_not_tell():
    assert read({"message": "Coordinator is disabled."}, 500) is None
    assert read({"message": "NOT_FOUND"}, 404) is None


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
