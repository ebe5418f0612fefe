"""How many replicas are in sync: ``Admin.replicas``, ``stat`` and ``doctor``."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from nsqsmart import Admin
from nsqsmart.cli.common.figures import Row, with_replicas
from nsqsmart.embedded import Cluster
from nsqsmart.errors import TopicNotExist
from tests.helpers import eventually


@pytest.fixture
def three():
    with Cluster(nsqds=3) as cluster:
        cluster.create_topic("orders", partitions=2, replicas=3)
        cluster.create_channel("orders", "billing")
        yield cluster


def counts(cluster, topic="orders"):
    return [(each.in_sync, each.wanted) for each in Admin(cluster.url).replicas(topic)]


def lose_one(cluster):
    """An nsqd is killed, and missed."""
    cluster.kill(cluster.nsqds[2])
    eventually(lambda: counts(cluster) == [(2, 3)] * 2)


def test_an_admin_counts_them(three):
    assert counts(three) == [(3, 3)] * 2
    found = Admin(three.url).replicas("orders")
    assert [each.leader for each in found] == [three.leader("orders", n).name for n in range(2)]
    assert all(each.complete for each in found)
    lose_one(three)
    assert not any(each.complete for each in Admin(three.url).replicas("orders"))
    three.restart(three.nsqds[2])
    eventually(lambda: counts(three) == [(3, 3)] * 2)


def test_an_original_cluster_has_none():
    with Cluster(dialect="original") as cluster:
        cluster.create_topic("orders")
        admin = Admin(cluster.url)
        assert admin.replicas("orders") == []
        with pytest.raises(TopicNotExist):
            admin.replicas("nowhere")


def test_stat_shows_them(three, nsqsmart):
    def lines(*more):
        code, out, err = nsqsmart("stat", *more, "--url", three.url)
        assert (code, err) == (0, "")
        return [line.split() for line in out.splitlines()]

    assert [line[-1] for line in lines("orders")] == ["in-sync", "3/3"]
    lose_one(three)
    assert [line[-1] for line in lines("--partitions")] == ["in-sync", "2/3", "2/3"]
    (report,) = nsqsmart.records("stat", "orders", "--url", three.url)
    (row,) = report["channels"]
    assert (row["in_sync"], row["replicas"]) == (2, 3)
    # Of all topics together not every leader is asked.
    assert lines()[0][-1] == "clients"


def test_stat_of_an_original_topic_has_no_such_column(nsqsmart):
    with Cluster(dialect="original") as cluster:
        cluster.create_topic("orders")
        _, out, _ = nsqsmart("stat", "orders", "--partitions", "--url", cluster.url)
    assert "in-sync" not in out


def test_the_partition_that_lacks_most_speaks_for_the_topic():
    def found(*given):
        every = [
            SimpleNamespace(partition=number, in_sync=count, wanted=3)
            for number, count in enumerate(given)
        ]
        (row,) = with_replicas([Row("orders", None, None, "c")], {"orders": every})
        return row.cells(partitions=False, moving=False, replicas=True)[-1]

    assert found(3, 1, 2) == "1/3"
    assert found(3, None) == "?/3"
    assert found() is None


def test_doctor_fails_where_one_is_missing(three, nsqsmart):
    def ask():
        code, out, _ = nsqsmart("doctor", "--url", three.url, "--json")
        report = json.loads(out)
        steps = [each for each in report["steps"] if each["name"].endswith("replicas")]
        return code, report["advice"] or "", [each["detail"] for each in steps]

    assert ask() == (0, "", ["3 of 3 in sync"] * 2)
    lose_one(three)
    eventually(lambda: three.nsqds[2].name not in str(Admin(three.url).nodes()))
    code, advice, details = ask()
    assert (code, details) == (1, ["2 of 3 in sync"] * 2)
    assert "restart no other one before all are in sync again" in advice
