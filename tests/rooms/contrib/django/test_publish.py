"""publish(): what goes out at a commit, what a rollback drops, and what a failure does."""

from __future__ import annotations

import asyncio
import logging
import threading
import unittest
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from django.db import connection, connections, transaction
from django.test import TestCase

import nsqsmart
from nsqsmart.contrib.django import (
    apublish,
    counts,
    producers,
    publish,
    publish_failed,
    publishing,
)
from nsqsmart.contrib.django.publishing import CommitBatch
from nsqsmart.embedded import Cluster
from nsqsmart.errors import ConfigError, PublishError
from nsqsmart.testing.recording import Published

NO_NSQD = {"URL": "nsq://127.0.0.1:1", "OPTIONS": {"publish_timeout": 0.2}, "IN_TESTS": "send"}


class Rollback(Exception):
    pass


@contextmanager
def rolled_back(database: str = "default") -> Iterator[None]:
    """A transaction, or a savepoint, that comes to nothing."""
    with suppress(Rollback), transaction.atomic(using=database):
        yield
        raise Rollback


@pytest.fixture
def lost(recorded):
    """What publish_failed tells."""
    heard = []

    def listen(**told):
        heard.append(told)

    publish_failed.connect(listen)
    yield heard
    publish_failed.disconnect(listen)


def bodies(recorded) -> list[bytes]:
    return [each.body for each in recorded]


# ------------------------------------------------------------------------------ commit, rollback


def test_it_waits_for_the_commit(database, recorded):
    with transaction.atomic(using=database):
        assert publish("orders", b"1", key="a", headers={"h": 1}) is None
        assert recorded == []
    assert recorded == [Published("orders", b"1", "a", headers={"h": 1})]


def test_without_a_transaction_it_goes_at_once(recorded):
    assert publish("orders", b"1") is None
    assert bodies(recorded) == [b"1"]


def test_without_a_transaction_no_database_is_asked(recorded):
    connections["default"].close()
    connections["default"].connection = None
    publish("orders", b"1")
    assert connections["default"].connection is None
    assert bodies(recorded) == [b"1"]


def test_a_rollback_drops_it(database, recorded):
    with rolled_back(database):
        publish("orders", b"1")
    with transaction.atomic(using=database):
        publish("orders", b"2")
    assert bodies(recorded) == [b"2"]


def test_an_inner_rollback_drops_only_what_was_inside(database, recorded):
    with transaction.atomic(using=database):
        publish("orders", b"1")
        with rolled_back(database):
            publish("orders", b"lost")
            with transaction.atomic(using=database):
                publish("orders", b"lost too")
        with transaction.atomic(using=database):
            publish("orders", b"2")
            with rolled_back(database):
                publish("orders", b"lost")
            publish("orders", b"3")
        publish("orders", b"4")
    assert bodies(recorded) == [b"1", b"2", b"3", b"4"]


def test_an_outer_rollback_drops_what_an_inner_commit_kept(database, recorded):
    with transaction.atomic(using=database):
        with rolled_back(database):
            for number in range(3):
                with transaction.atomic(using=database):
                    publish("orders", b"%d" % number)
        publish("orders", b"kept")
    assert bodies(recorded) == [b"kept"]


@pytest.mark.parametrize("savepoint", [True, False])
def test_a_bulk_load_is_one_callback(recorded, savepoint):
    with transaction.atomic():
        for number in range(10_000):
            with transaction.atomic(savepoint=savepoint):
                publish("orders", b"%d" % number)
        assert sum(isinstance(hook[1], CommitBatch) for hook in connection.run_on_commit) <= 2
    assert bodies(recorded) == [b"%d" % number for number in range(10_000)]


def test_a_rollback_of_one_row_in_a_bulk_load_drops_that_row(recorded):
    with transaction.atomic():
        for number in range(100):
            with transaction.atomic() if number % 10 else rolled_back():
                publish("orders", b"%d" % number)
    assert bodies(recorded) == [b"%d" % number for number in range(100) if number % 10]


def test_the_body_is_what_it_was_when_it_was_published(recorded):
    body, headers = bytearray(b"before"), {"a": 1}
    with transaction.atomic():
        publish("orders", body, headers=headers)
        body[:] = b"behind"
        headers["a"] = 2
    assert recorded[0].body == b"before"
    assert recorded[0].headers == {"a": 1}


@pytest.mark.parametrize(
    ("arguments", "named", "words"),
    [
        (("orders", "text"), {}, "body must be bytes, not str"),
        (("bad topic", b"x"), {}, "bad topic"),
        (("orders", b"x"), {"key": 1.5}, "key must be"),
        (("orders", b"x"), {"kye": "a"}, "kye"),
        (("orders", b"x"), {"when": "later"}, "when= 'later' is none of on_commit, now, outbox"),
        (("orders", b"x"), {"when": "on_comit"}, "did you mean on_commit"),
        (("orders", b"x"), {"alias": "audti"}, "no alias 'audti': did you mean audit"),
    ],
)
def test_a_mistake_is_told_at_once_and_not_at_the_commit(recorded, arguments, named, words):
    with transaction.atomic(), pytest.raises((TypeError, ConfigError), match=words):
        publish(*arguments, **named)
    assert recorded == []


def test_now_is_now_even_in_a_transaction(recorded):
    with rolled_back():
        receipt = publish("orders", b"1", when="now")
        assert receipt.topic == "orders"
    assert bodies(recorded) == [b"1"]


def test_the_settings_say_when(nsq_settings, recorded):
    nsq_settings(default={"URL": "nsq://h:1", "PUBLISH": "now"})
    with transaction.atomic():
        assert publish("orders", b"1") is not None
        assert publish("orders", b"2", when="on_commit") is None
        assert bodies(recorded) == [b"1"]


def test_several_databases(recorded):
    with transaction.atomic(using="other"):
        publish("orders", b"1")
        assert recorded == []
        with transaction.atomic(using="default"):
            with pytest.raises(ConfigError, match="open on default and other: say which by using="):
                publish("orders", b"2")
            publish("orders", b"3", using="default")
        assert bodies(recorded) == [b"3"]
    assert bodies(recorded) == [b"3", b"1"]


def test_aliases_share_one_callback(recorded):
    with transaction.atomic():
        publish("orders", b"1")
        publish("log", b"2", alias="audit")
        publish("orders", b"3")
        assert len(connection.run_on_commit) == 1
    assert [(each.alias, each.body) for each in recorded] == [
        ("default", b"1"),
        ("default", b"3"),
        ("audit", b"2"),
    ]


def test_from_an_async_view(recorded):
    assert asyncio.run(apublish("orders", b"1", when="now")).topic == "orders"
    assert bodies(recorded) == [b"1"]


def test_an_async_view_leaves_the_loop_to_others(recorded, monkeypatch):
    others_ran = threading.Event()
    real = publishing.publish

    def slowly(*arguments, **keywords):
        assert others_ran.wait(5), "the loop stands still meanwhile"
        return real(*arguments, **keywords)

    async def view():
        publishes = asyncio.create_task(apublish("orders", b"1", when="now"))
        await asyncio.sleep(0)  # it begins
        others_ran.set()
        return await publishes

    monkeypatch.setattr(publishing, "publish", slowly)
    assert asyncio.run(view()).topic == "orders"
    assert bodies(recorded) == [b"1"]


# ------------------------------------------------------------------------------------- failures


def test_a_failure_after_the_commit_is_logged_counted_and_signalled(
    nsq_settings, lost, caplog, database
):
    nsq_settings(default=NO_NSQD)
    before, ran = counts(), []
    with transaction.atomic(using=database):
        publish("orders", b"secret", key="customer-7")
        publish("orders", b"secret too", trace_id=7)
        transaction.on_commit(lambda: ran.append(True), using=database)
    assert ran == [True]
    assert counts().failed - before.failed == 2
    assert {(each["topic"], each["body"]) for each in lost} == {
        ("orders", b"secret"),
        ("orders", b"secret too"),
    }
    assert {str(each["arguments"]) for each in lost} == {"{'key': 'customer-7'}", "{'trace_id': 7}"}
    assert all(isinstance(each["error"], nsqsmart.NsqError) for each in lost)
    assert {each["sender"] for each in lost} == {"default"}
    records = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert len(records) == 2
    assert {(each.nsq_topic, each.nsq_key, each.nsq_size) for each in records} == {
        ("orders", "customer-7", 6),
        ("orders", None, 10),
    }
    assert "secret" not in caplog.text
    assert "key 'customer-7', 6 bytes" in caplog.text


def test_a_listener_that_fails_hurts_nobody(nsq_settings, lost):
    def fail(**told):
        raise ValueError("oops")

    nsq_settings(default=NO_NSQD)
    publish_failed.connect(fail)
    try:
        publish("orders", b"1")
    finally:
        publish_failed.disconnect(fail)
    assert len(lost) == 1


def test_settings_that_are_wrong_lose_nothing_silently(nsq_settings, lost):
    nsq_settings(default={"URL": "nsq://h:1", "OPTIONS": {"publish_timeot": 3}, "IN_TESTS": "send"})
    publish("orders", b"1")
    assert "did you mean publish_timeout" in str(lost[0]["error"])
    assert "settings.NSQSMART['default']['OPTIONS']" in str(lost[0]["error"])


def test_now_raises_what_fails(nsq_settings, lost):
    nsq_settings(default=NO_NSQD)
    with pytest.raises(PublishError):
        publish("orders", b"1", when="now")
    assert lost == []


def test_what_ends_the_process_in_the_middle_leaves_a_record(recorded, lost, monkeypatch):
    def end(*_arguments, **_named):
        raise SystemExit(1)

    monkeypatch.setattr(type(producers["default"]), "publish", end)

    def work():
        with transaction.atomic():
            publish("orders", b"1")
            publish("orders", b"2", alias="audit")

    with pytest.raises(SystemExit):
        work()
    assert sorted(each["body"] for each in lost) == [b"1", b"2"]
    assert "SystemExit" in str(lost[0]["error"])


# ------------------------------------------------------------------------------- a real cluster


@pytest.fixture
def cluster(nsq_settings):
    with Cluster(nsqds=2, lookupds=1) as made:
        for topic in ("orders", "log"):
            made.create_topic(topic, partitions=2)
            made.create_channel(topic, "ch")
        nsq_settings(default={"URL": made.url, "IN_TESTS": "send"})
        yield made


def test_a_transaction_is_one_command_for_each_topic_and_partition(cluster):
    with transaction.atomic():
        for number in range(500):
            publish("orders", b"%d" % number, key=f"customer-{number % 20}")
            publish("log", b"%d" % number)
    log = cluster.log
    assert len(log.of("MPUB", "orders")) == 2
    assert len(log.of("MPUB", "log")) == 1
    assert log.of("PUB") == []
    found = [each for part in range(2) for each in cluster.stored("orders", part)]
    assert sorted(int(each.body) for each in found) == list(range(500))
    by_customer: dict[int, list[int]] = {}
    for each in found:
        by_customer.setdefault(int(each.body) % 20, []).append(int(each.body))
    assert all(numbers == sorted(numbers) for numbers in by_customer.values())


def test_keys_go_where_a_producer_sends_them(cluster):
    with transaction.atomic():
        for number in range(40):
            publish("orders", b"%d" % number, key=f"customer-{number}")
    with nsqsmart.Producer(cluster.url) as producer:
        for part in range(2):
            for each in cluster.stored("orders", part):
                assert producer.partition_of("orders", f"customer-{int(each.body)}") == part


def test_one_that_is_refused_does_not_take_others_along(lost, nsq_settings):
    with Cluster(nsqds=1, max_msg_size=1000) as small:
        small.create_topic("orders")
        small.create_channel("orders", "ch")
        nsq_settings(default={"URL": small.url, "IN_TESTS": "send"})
        with transaction.atomic():
            for size in (10, 2000, 20):
                publish("orders", b"x" * size, key="a")
        assert [len(each.body) for each in small.stored("orders")] == [10, 20]
    assert [len(each["body"]) for each in lost] == [2000]


def test_a_topic_that_is_missing_does_not_take_others_along(cluster, lost, nsq_settings):
    nsq_settings(
        default={"URL": cluster.url, "IN_TESTS": "send", "OPTIONS": {"publish_timeout": 2}}
    )
    with transaction.atomic():
        publish("missing", b"1", timeout=0.2)
        publish("orders", b"2")
    assert [each["topic"] for each in lost] == ["missing"]
    assert [each.body for each in cluster.stored("orders")] == [b"2"]


def test_what_cannot_go_in_a_batch_keeps_its_place(cluster):
    with transaction.atomic():
        for number in range(6):
            publish("orders", b"%d" % number, key="a", **({"trace_id": 7} if number == 3 else {}))
    found = [each for part in range(2) for each in cluster.stored("orders", part)]
    assert [int(each.body) for each in found] == list(range(6))
    assert found[3].trace_id == 7


# ------------------------------------------------------------------------------ Django's TestCase


class InTestCase(TestCase):
    """Run by the tests below: pytest would find it here otherwise."""

    __test__ = False
    databases = ("default", "other")

    def test_each_capture_has_its_own(self):
        with self.captureOnCommitCallbacks(execute=True) as first:
            with transaction.atomic():
                publish("orders", b"1")
                publish("orders", b"2")
            publish("orders", b"3")
        with transaction.atomic():
            publish("orders", b"not captured")
        with self.captureOnCommitCallbacks(execute=True) as second:
            for number in range(3):
                with transaction.atomic():
                    publish("orders", b"4%d" % number)
        assert (len(first), len(second)) == (2, 3)

    def test_an_inner_rollback(self):
        with self.captureOnCommitCallbacks(execute=True), transaction.atomic():
            publish("orders", b"1")
            with rolled_back():
                publish("orders", b"lost")
            publish("orders", b"2")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("test_each_capture_has_its_own", [b"1", b"2", b"3", b"40", b"41", b"42"]),
        ("test_an_inner_rollback", [b"1", b"2"]),
    ],
)
def test_in_a_test_case(recorded, name, wanted):
    result = unittest.TestResult()
    unittest.TestSuite([InTestCase(name)]).run(result)
    assert [text for _, text in result.failures + result.errors] == []
    assert bodies(recorded) == wanted
