"""The outbox: a message is a row of its transaction, and a relay publishes it at least once."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.utils import timezone

from nsqsmart.contrib.django import producers, publish, publish_failed
from nsqsmart.contrib.shared.sending import Letter
from nsqsmart.embedded import Cluster
from nsqsmart.testing.recording import Published
from tests.helpers import eventually
from tests.rooms.contrib.django.writing import write


@pytest.fixture
def cluster(nsq_settings):
    with Cluster(nsqds=2, lookupds=1) as made:
        for topic in ("orders", "log"):
            made.create_topic(topic, partitions=2)
            made.create_channel(topic, "ch")
        nsq_settings(default={"URL": made.url, "IN_TESTS": "send"})
        yield made


def stored(cluster, topic="orders"):
    return [int(each.body) for part in range(2) for each in cluster.stored(topic, part)]


def test_a_row_is_part_of_the_transaction(database, recorded, rows, make_relay):
    with suppress(ValueError), transaction.atomic(using=database):
        write(database, 1)
        raise ValueError
    with transaction.atomic(using=database):
        write(database, 2)
    assert [bytes(row.body) for row in rows()] == [b"2"]
    assert recorded == []
    assert make_relay().run_once().sent == 1
    assert [each.body for each in recorded] == [b"2"]
    assert not rows()


def test_it_finds_the_database_of_the_open_transaction(database, rows):
    with transaction.atomic(using=database):
        publish("orders", b"1", when="outbox")
    assert len(rows()) == 1


def test_everything_that_was_said_of_it_arrives(database, recorded, make_relay):
    given = {"headers": {"a": [1, "é"]}, "tag": "t", "trace_id": 2**64 - 1, "delay": 1.5}
    publish("orders", b"\x00\xff", key=b"\x01\x02", when="outbox", using=database, **given)
    publish("orders", b"2", key=7, when="outbox", using=database)
    publish("orders", b"3", partition=1, alias="audit", when="outbox", using=database)
    assert make_relay().run_once().sent == 3
    assert sorted(recorded, key=lambda each: each.body) == [
        Published(
            "orders", b"\x00\xff", b"\x01\x02", 1.5, {"a": [1, "é"]}, "t", 2**64 - 1, "default"
        ),
        Published("orders", b"2", 7),
        Published("orders", b"3", alias="audit", partition=1),
    ]


def test_the_settings_can_say_so(database, nsq_settings, rows):
    nsq_settings(default={"URL": "nsq://h:1", "PUBLISH": "outbox"})
    assert publish("orders", b"1", using=database) is None
    assert len(rows()) == 1


def test_order_by_key_is_kept_and_the_batches_are_large(database, cluster, make_relay, rows):
    for number in range(200):
        write(database, number, key=f"customer-{number % 10}")
    assert make_relay(50).run_once().sent == 200
    found = stored(cluster)
    assert sorted(found) == list(range(200))
    for customer in range(10):
        mine = [number for number in found if number % 10 == customer]
        assert mine == sorted(mine)
    assert len(cluster.log.of("PUB")) + len(cluster.log.of("MPUB")) < 50
    assert not rows()


def test_what_cannot_be_published_yet_stays_in_order(
    database, cluster, nsq_settings, make_relay, rows
):
    # Half of it is spent on the topic that is not there.
    nsq_settings(
        default={"URL": cluster.url, "IN_TESTS": "send", "OPTIONS": {"publish_timeout": 2}}
    )
    for number in range(4):
        write(database, number, topic="later")
        write(database, number)
    passage = make_relay(2).run_once()
    assert (passage.sent, passage.refused) == (4, 0)
    assert passage.kept >= 1
    left = list(rows())
    assert [(row.topic, bytes(row.body)) for row in left] == [
        ("later", b"%d" % number) for number in range(4)
    ]
    assert "later" in left[0].last_error
    cluster.create_topic("later", partitions=2)
    cluster.create_channel("later", "ch")
    relay = make_relay(2)
    eventually(lambda: relay.run_once().kept == 0)
    assert stored(cluster, "later") == list(range(4))
    assert not rows()


def test_what_is_refused_for_good_is_set_aside_and_told(
    database, nsq_settings, make_relay, rows, caplog
):
    heard = []

    def listen(**told):
        heard.append(told)

    publish_failed.connect(listen)
    with Cluster(nsqds=1, max_msg_size=1000) as small:
        small.create_topic("orders")
        small.create_channel("orders", "ch")
        nsq_settings(default={"URL": small.url, "IN_TESTS": "send"})
        for size in (1, 2000, 2):
            publish("orders", b"x" * size, key="a", when="outbox", using=database)
        passage = make_relay().run_once()
        assert (passage.sent, passage.refused, passage.kept) == (2, 1, 0)
        assert make_relay().run_once().refused == 0
    publish_failed.disconnect(listen)
    assert [(len(row.body), row.refused) for row in rows()] == [(2000, True)]
    assert [len(each["body"]) for each in heard] == [2000]
    assert "2000 bytes" in caplog.text
    assert "xxx" not in caplog.text


def test_several_relays_at_once_publish_each_once_and_in_order(database, cluster, make_relay, rows):
    for number in range(400):
        write(database, number, key=f"customer-{number % 20}")
    problems = []

    def relay():
        try:
            mine = make_relay(10)
            while rows().exists():
                mine.run_once()
        except Exception as error:  # noqa: BLE001 - told below
            problems.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=relay) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []
    found = stored(cluster)
    assert len(found) == 400
    assert set(found) == set(range(400))
    for customer in range(20):
        mine = [number for number in found if number % 20 == customer]
        assert mine == sorted(mine)


def test_a_lane_that_another_relay_has_is_left_to_it(database, recorded, models, make_relay, rows):
    write(database, 1)
    lane = rows()[0].lane
    one, other = make_relay(), make_relay()
    with one._hold(lane) as mine:
        assert mine
        taken = []

        def look():
            with other._hold(lane) as his:
                taken.append(his)
            connections.close_all()

        thread = threading.Thread(target=look)
        thread.start()
        thread.join(30)
        assert taken == [False]
    with other._hold(lane) as his:
        assert his


def test_a_lease_that_is_over_is_taken(recorded, models, make_relay):
    lanes = models.OutboxLane.objects
    publish("orders", b"1", key="a", when="outbox", using="default")
    lane = models.OutboxMessage.objects.get(body=b"1").lane
    lanes.filter(lane=lane).delete()
    lanes.create(lane=lane, holder="dead", held_until=timezone.now() + timedelta(seconds=60))
    from nsqsmart.contrib.django.relaying import Relay

    assert Relay("default").run_once().sent == 0
    lanes.filter(lane=lane).update(held_until=timezone.now() - timedelta(seconds=1))
    assert Relay("default").run_once().sent == 1
    lanes.filter(lane=lane).update(holder="", held_until=None)


def test_a_relay_that_dies_behind_the_publish_publishes_again(
    database, recorded, make_relay, rows, monkeypatch
):
    from nsqsmart.contrib.django import relaying

    write(database, 1)
    real = relaying.Dispatch.run

    def die(self):
        real(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(relaying.Dispatch, "run", die)
        with pytest.raises(KeyboardInterrupt):
            make_relay().run_once()
    assert len(rows()) == 1
    assert make_relay().run_once().sent == 1
    assert [each.body for each in recorded] == [b"1", b"1"]


def test_wrong_settings_keep_the_rows(database, nsq_settings, make_relay, rows, caplog):
    nsq_settings(default={"URL": "nsq://h:1"}, gone={"URL": "nsq://h:1"})
    publish("orders", b"1", alias="gone", when="outbox", using=database)
    nsq_settings(default={"URL": "nsq://h:1"})
    assert make_relay().run_once().kept == 1
    assert "no alias 'gone'" in rows()[0].last_error


def test_keys_of_one_kind_have_one_lane(models):
    letters = [Letter.write("orders", b"%d" % n, "default", key="a") for n in range(20)]
    assert len({models.lane_of(letter) for letter in letters}) == 1
    others = [Letter.write("orders", b"x", "default", key=f"{n}") for n in range(200)]
    assert len({models.lane_of(letter) for letter in others}) == models.LANES


def test_the_command_empties_it_once(database, recorded, rows, capsys):
    write(database, 1)
    call_command("nsq_relay", once=True, database=database)
    assert "1 sent, 0 refused, 0 kept" in capsys.readouterr().out
    assert not rows()


def test_the_command_says_that_something_is_left(database, nsq_settings):
    nsq_settings(
        default={
            "URL": "nsq://127.0.0.1:1",
            "IN_TESTS": "send",
            "OPTIONS": {"publish_timeout": 0.1},
        }
    )
    write(database, 1, key=None)
    with pytest.raises(CommandError, match="yet") as caught:
        call_command("nsq_relay", once=True, database=database)
    assert caught.value.returncode == 75


def test_the_migration_is_complete(recorded):
    call_command("makemigrations", "nsqsmart", check=True, dry_run=True, verbosity=0)


def test_producers_are_those_of_the_settings(nsq_settings, cluster):
    assert producers["default"] is producers["default"]
    assert producers["default"].ping()
