"""nsq_consume: the handlers of a project, with connections and transactions as a request has."""

from __future__ import annotations

import io
import threading

import pytest
from django.core.management import CommandError, call_command
from django.db import connections, transaction

import nsqsmart
from nsqsmart.contrib.django import handler, handlers
from nsqsmart.contrib.django.handlers import around, pool_warnings
from nsqsmart.embedded import Cluster


@pytest.fixture
def declared(recorded, monkeypatch):
    made: list = []
    monkeypatch.setattr(handlers, "declared", made)
    return made


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch):
    monkeypatch.setattr("nsqsmart.client.consuming.run._LOOK_EVERY", 0.02)


@pytest.fixture
def cluster(nsq_settings):
    with Cluster(nsqds=2, lookupds=1) as made:
        made.create_topic("orders", partitions=2)
        made.create_channel("orders", "billing")
        nsq_settings(
            default={
                "URL": made.url,
                "OPTIONS": {"backoff_multiplier": 0.01, "default_requeue_delay": 0.05},
            }
        )
        with nsqsmart.Producer(made.url) as producer:
            made.publish = lambda *bodies: [producer.publish("orders", each) for each in bodies]
            yield made


def consume(**options) -> str:
    out = io.StringIO()
    call_command("nsq_consume", stdout=out, stderr=out, skip_checks=True, **options)
    return out.getvalue()


def rows(database="default"):
    from nsqsmart.contrib.django.models import OutboxMessage

    return OutboxMessage.objects.using(database)


def test_handlers_get_messages_until_there_were_enough(cluster, declared):
    seen = []
    handler("orders", "billing", workers=1)(lambda message: seen.append(message.body))
    cluster.publish(b"1", b"2", b"3", b"4", b"5")
    out = consume(max_messages=3)
    assert len(seen) == 3
    assert "orders/billing: 3 finished" in out
    consume(max_messages=2)
    assert sorted(seen) == [b"1", b"2", b"3", b"4", b"5"]


def test_it_ends_when_it_is_idle(cluster, declared):
    seen = []
    handler("orders", "billing")(lambda message: seen.append(message.body))
    cluster.publish(b"1")
    consume(exit_when_idle=2)
    assert seen == [b"1"]


def test_a_batch_handler(cluster, declared):
    seen = []
    handler("orders", "billing", batch=True)(lambda found: seen.extend(m.body for m in found))
    cluster.publish(b"1", b"2")
    consume(max_messages=2)
    assert sorted(seen) == [b"1", b"2"]


def test_it_is_finished_behind_the_commit(cluster, declared, database, monkeypatch):
    finished_at_commit = []
    wrapper = type(connections[database])
    real = wrapper.commit

    def commit(self):
        real(self)
        finished_at_commit.append(len(cluster.log.of("FIN")))

    monkeypatch.setattr(wrapper, "commit", commit)

    @handler("orders", "billing", atomic=database, workers=1)
    def bill(message):
        assert connections[database].in_atomic_block
        rows(database).create(alias="a", topic="t", body=message.body, lane=0)

    cluster.publish(b"1")
    consume(max_messages=1)
    assert finished_at_commit == [0]
    assert len(cluster.log.of("FIN")) == 1
    assert [bytes(row.body) for row in rows(database).all()] == [b"1"]


@pytest.mark.parametrize("how", ["raise", "false", "requeue", "raise_requeue"])
def test_what_is_requeued_was_rolled_back(cluster, declared, database, how):
    attempts = []

    @handler("orders", "billing", atomic=database, workers=1)
    def bill(message):
        attempts.append(message.attempts)
        rows(database).create(alias="a", topic="t", body=b"%d" % len(attempts), lane=0)
        if len(attempts) > 1:
            return None
        if how == "raise":
            raise ValueError
        if how == "raise_requeue":
            raise nsqsmart.Requeue(0.05)
        return False if how == "false" else nsqsmart.Requeue(0.05)

    cluster.publish(b"x")
    consume(max_messages=2)
    assert len(attempts) == 2
    assert [bytes(row.body) for row in rows(database).all()] == [b"2"]


def test_a_connection_the_database_has_closed_fails_no_second_message(cluster, declared, database):
    seen, failed = [], []

    @handler("orders", "billing", workers=1)
    def bill(message):
        try:
            rows(database).count()
        except Exception:
            failed.append(message.body)
            raise
        seen.append(message.body)
        # As a server does that was started again.
        connections[database].connection.close()

    cluster.publish(b"1", b"2", b"3")
    consume(max_messages=3, exit_when_idle=20)
    assert sorted(seen) == [b"1", b"2", b"3"]


def test_connections_are_given_back_behind_every_message(declared, recorded):
    found = []

    @handler("orders", "billing")
    def bill(message):
        rows().count()
        found.append(connections["default"].connection)

    run = around(declared[0])
    thread = threading.Thread(target=lambda: (run(None), found.append(connections["default"])))
    thread.start()
    thread.join(10)
    assert found[0] is not None
    assert found[1].connection is None


def test_inside_a_transaction_the_connection_stays(declared, recorded):
    @handler("orders", "billing")
    def bill(message):
        rows().create(alias="a", topic="t", body=b"1", lane=0)

    with transaction.atomic():
        around(declared[0])(None)
        assert connections["default"].in_atomic_block
        assert rows().count() == 1
        transaction.set_rollback(True)


def test_the_handlers_are_chosen_by_name(cluster, declared):
    seen = []
    handler("orders", "billing")(lambda message: seen.append(message.body))
    handler("orders", "mail")(lambda message: seen.append(b"wrong"))
    handler("log", "mail", alias="audit")(lambda message: seen.append(b"wrong"))
    cluster.publish(b"1")
    out = consume(channel="billing", max_messages=1, exit_when_idle=20)
    assert seen == [b"1"]
    assert "mail" not in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": "bills"}, "no handler has topic bills: there are orders/billing"),
        ({"alias": "audit"}, "no handler has alias audit"),
    ],
)
def test_what_is_not_there_is_told(declared, recorded, options, words):
    handler("orders", "billing")(lambda message: None)
    with pytest.raises(CommandError, match=words) as caught:
        consume(**options)
    assert caught.value.returncode == 1


def test_without_a_handler_there_is_nothing_to_do(declared, recorded):
    with pytest.raises(CommandError, match="no handler is declared"):
        consume()


def test_two_on_a_channel_do_not_start(declared, recorded):
    handler("orders", "billing")(lambda message: None)
    handler("orders", "billing")(lambda message: None)
    with pytest.raises(CommandError, match="both consume"):
        consume()


def test_options_of_the_alias_are_checked(declared, nsq_settings):
    nsq_settings(default={"URL": "nsq://h:1", "OPTIONS": {"max_in_flite": 1}})
    handler("orders", "billing")(lambda message: None)
    with pytest.raises(CommandError, match="did you mean max_in_flight"):
        consume()


def test_without_servers_it_ends_to_be_started_again(declared, nsq_settings):
    nsq_settings(default={"URL": "nsq://127.0.0.1:1"})
    handler("orders", "billing")(lambda message: None)
    with pytest.raises(CommandError, match="no nsqd was reached for 0.5 s") as caught:
        consume(lost_after=0.5)
    assert caught.value.returncode == 75


def test_a_pool_that_is_too_small_is_told(declared, recorded, monkeypatch):
    from django.conf import settings

    handler("orders", "billing", workers=6)(lambda message: None)
    assert pool_warnings(declared, None) == []
    monkeypatch.setitem(settings.DATABASES["default"], "OPTIONS", {"pool": {"max_size": 4}})
    (warning,) = pool_warnings(declared, None)
    assert "pool of 4 connections for 6 workers" in warning
    assert pool_warnings(declared, 2) == []


def test_under_a_reloader_a_mistake_is_told_and_waited_upon(declared, recorded):
    from nsqsmart.contrib.django.management.commands.nsq_consume import Command

    told = io.StringIO()
    options = {"max_messages": None, "exit_when_idle": None, "lost_after": None, "workers": None}
    names = {"topic": None, "channel": None, "alias": None}
    Command(stderr=told).consume_reloaded(**options, **names, autoreload=True)
    assert "no handler is declared" in told.getvalue()
