"""The life of traced messages, as the consumer logs it, and the switch that decides of whom."""

from __future__ import annotations

import json
import logging
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import nsqsmart
from nsqsmart import tracing
from nsqsmart.embedded import Cluster
from tests.helpers import eventually
from tests.integration.consuming import Handled, all_finished, publish

Lines = Callable[..., list[dict[str, Any]]]

BODY = b"secret-body"
TRACE_ID = 2**64 - 3


@pytest.fixture(autouse=True)
def switch(caplog) -> Iterator[None]:
    """Tracing is on for topic t, and logged; off again afterwards."""
    caplog.set_level(logging.INFO, "nsqsmart")
    tracing.enable("t")
    yield
    tracing.set_source(None)


@pytest.fixture
def lines(caplog) -> Lines:
    """The consumers' trace log so far, of one event or all."""

    def read(event: str | None = None) -> list[dict[str, Any]]:
        found = [
            json.loads(record.getMessage())
            for record in list(caplog.records)
            if record.name == "nsqsmart.trace"
        ]
        return [each for each in found if "channel" in each and event in (None, each["event"])]

    return read


def events(lines: Lines) -> list[str]:
    return [each["event"] for each in lines()]


def make(*, ordered: bool = False, extend_support: bool = False, **options) -> Cluster:
    cluster = Cluster(nsqds=2, **options)
    cluster.create_topic("t", partitions=2, ordered=ordered, extend_support=extend_support)
    cluster.create_channel("t", "c")
    return cluster


@pytest.fixture
def cluster():
    with make() as made:
        yield made


@pytest.fixture
def hasty():
    """Delivers again after 0.5 s."""
    with make(msg_timeout=0.5) as made:
        yield made


def peers(cluster: Cluster) -> set[str]:
    """The addresses from which the servers see topic t consumed."""
    found = set()
    for nsqd in cluster.nsqds:
        url = "http://{}:{}/stats?format=json&topic=t".format(*nsqd.http_address)
        with urllib.request.urlopen(url, timeout=5) as answer:
            topics = json.loads(answer.read())["data"]["topics"]
        clients = [
            client for topic in topics for one in topic["channels"] for client in one["clients"]
        ]
        found |= {client["remote_address"] for client in clients}
    return found


def consume(cluster: Cluster, handler, **options):
    return nsqsmart.Consumer("t", "c", handler, address=cluster.url, **options)


@pytest.mark.parametrize("extend_support", [False, True])
@pytest.mark.parametrize(
    ("ordered", "options", "command"),
    [
        (False, {}, "SUB"),
        (False, {"workers": 0}, "SUB"),
        (False, {"positions": True}, "SUB_ADVANCED"),
        (True, {}, "SUB_ORDERED"),
    ],
)
def test_the_life_of_a_message(caplog, lines, ordered, options, command, extend_support):
    with make(ordered=ordered, extend_support=extend_support) as cluster:
        publish(cluster, BODY, trace_id=TRACE_ID, partition=1)
        handled = Handled()
        with consume(cluster, handled, client_id="me", **options):
            eventually(lambda: "finished" in events(lines))
            all_finished(cluster)
            seen_from = peers(cluster)
        assert cluster.log.of(command)
        (stored,) = cluster.stored("t")
    assert events(lines) == ["received", "started", "finished"]
    times = [each["mono_ns"] for each in lines()]
    assert times == sorted(times)
    for each in lines():
        assert (each["topic"], each["channel"], each["partition"]) == ("t", "c", 1)
        assert each["nsq_trace_id"] == str(TRACE_ID)
        assert each["nsq_internal_id"] == str(stored.internal_id)
        assert each["nsq_timestamp_ns"] == str(handled.messages[0].timestamp)
        assert each["nsqd_addr"] == stored.nsqd
        assert each["local_addr"] in seen_from
        assert (each["attempts"], each["client_id"]) == (1, "me")
        if command == "SUB":
            assert not {"nsq_disk_offset", "nsq_disk_size"} & set(each)
        else:
            assert each["nsq_disk_offset"] == str(stored.offset)
            assert each["nsq_disk_size"] == handled.messages[0].size
    assert BODY.decode() not in caplog.text


def test_only_traced_messages_are_logged(cluster, lines):
    publish(cluster, b"1", b"2", b"3", trace=False)
    publish(cluster, b"4", b"5", trace=True)
    handled = Handled()
    with consume(cluster, handled):
        eventually(lambda: len(handled.messages) == 5)
        all_finished(cluster)
    traced = [str(each.trace_id) for each in handled.messages if each.trace_id]
    assert Counter(each["nsq_trace_id"] for each in lines("finished")) == Counter(traced)
    assert len(lines()) == 6


def test_a_failure_is_logged_by_its_kind_and_the_next_delivery_by_its_number(cluster, lines):
    publish(cluster, BODY, trace_id=TRACE_ID)

    def handler(message: nsqsmart.Message) -> None:
        if message.attempts == 1:
            raise ValueError(message.body.decode())
        if message.attempts == 2:
            raise nsqsmart.Requeue(0.25, backoff=False)

    with consume(cluster, handler, default_requeue_delay=0.1, max_backoff_duration=0):
        eventually(lambda: "finished" in events(lines))
    told = [(each["event"], each["attempts"], each.get("error")) for each in lines()]
    assert told == [
        ("received", 1, None),
        ("started", 1, None),
        ("requeued", 1, "ValueError"),
        ("received", 2, None),
        ("started", 2, None),
        ("requeued", 2, None),
        ("received", 3, None),
        ("started", 3, None),
        ("finished", 3, None),
    ]
    assert [each["delay_ms"] for each in lines("requeued")] == [100, 250]
    assert BODY.decode() not in json.dumps(lines())


def test_a_failed_head_blocks_its_partition(lines):
    with make(ordered=True, msg_timeout=1) as cluster:
        publish(cluster, BODY, trace_id=TRACE_ID, partition=0)
        failed = []

        def handler(message: nsqsmart.Message) -> None:
            if not failed:
                failed.append(message)
                raise nsqsmart.Requeue(0.8)

        with consume(cluster, handler):
            eventually(lambda: "finished" in events(lines))
            all_finished(cluster)
    first_life = events(lines)[: events(lines).index("requeued") + 1]
    assert first_life[:3] == ["received", "started", "blocked"]
    assert set(first_life[3:-1]) == {"touched"}
    assert lines("blocked")[0]["delay_ms"] == 800
    assert lines("requeued")[0]["delay_ms"] == 0


def test_what_is_answered_too_late_is_logged_as_timed_out(hasty, lines):
    publish(hasty, BODY, trace_id=TRACE_ID)

    def handler(message: nsqsmart.Message) -> None:
        if message.attempts == 1:
            assert message.touch()
            eventually(lambda: message.expired)

    with consume(hasty, handler, workers=2):
        eventually(lambda: {"timed_out", "finished"} <= set(events(lines)))
        all_finished(hasty)
    first, again = lines("received")[:2]
    assert (first["attempts"], again["attempts"]) == (1, 2)
    assert [each["event"] for each in lines() if each["attempts"] == 1] == [
        "received",
        "started",
        "touched",
        "timed_out",
    ]
    assert lines("timed_out")[0]["duration_us"] >= 500_000


def test_what_is_answered_on_a_dead_connection_is_logged_as_lost(cluster, lines):
    publish(cluster, BODY, trace_id=TRACE_ID, partition=0)
    killed = threading.Event()
    finished: list[bool] = []

    def handler(message: nsqsmart.Message) -> None:
        assert killed.wait(10)
        eventually(lambda: not message._subscription.live)
        finished.append(message.finish())

    with consume(cluster, handler):
        eventually(lambda: lines("started"))
        cluster.kill(cluster.leader("t", 0))
        killed.set()
        eventually(lambda: finished)
    assert finished == [False]
    assert events(lines) == ["received", "started", "lost"]


def test_what_a_drain_gives_back_is_logged_as_requeued(cluster, lines):
    publish(cluster, *[BODY] * 10, trace=True, partition=0)
    release = threading.Event()
    handled = Handled()

    def handler(message: nsqsmart.Message) -> None:
        handled(message)
        assert release.wait(10)

    # The governor would give so slow a handler less.
    consumer = consume(cluster, handler, workers=1, rdy_mode="level").start()
    eventually(lambda: len(lines("received")) == 10)
    eventually(lambda: handled.messages)
    closer = threading.Thread(target=consumer.close)
    closer.start()
    eventually(lambda: consumer._runtime.draining)
    release.set()
    closer.join(20)
    assert Counter(events(lines)) == {"received": 10, "started": 1, "finished": 1, "requeued": 9}
    assert {each["delay_ms"] for each in lines("requeued")} == {0}


def test_a_file_turns_it_on_and_off_while_the_consumer_runs(cluster, lines, tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(tracing, "monotonic", lambda: now[0])
    file = tmp_path / "trace.json"
    file.write_text("{}")
    tracing.set_source(file)
    handled = Handled()
    with consume(cluster, handled):
        for number, (document, more) in enumerate(
            [("{}", 0), ('{"t": 0.001}', 3), ('{"other": 1}', 0), ("not JSON", 0), ('{"*": 1}', 3)]
        ):
            file.write_text(document)
            now[0] += 1
            before = len(lines())
            publish(cluster, BODY, trace=True)
            eventually(lambda number=number: len(handled.messages) == number + 1)
            all_finished(cluster)
            # The server may know that it is finished before the line is written.
            eventually(lambda before=before, more=more: len(lines()) - before >= more)
            assert len(lines()) - before == more, document


def test_nothing_is_logged_where_the_logger_is_off(cluster, caplog, lines):
    caplog.set_level(logging.WARNING, "nsqsmart.trace")
    publish(cluster, BODY, trace=True)
    handled = Handled()
    with consume(cluster, handled):
        eventually(lambda: handled.messages)
        all_finished(cluster)
    assert lines() == []
    assert handled.messages[0]._life is None


def test_a_redesigned_nsqd_named_by_hand_is_traced_too(lines):
    with Cluster(nsqds=1) as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        publish(cluster, BODY, trace_id=TRACE_ID)
        address = f"nsq://{cluster.nsqds[0].name}"
        with nsqsmart.Consumer("t", "c", Handled(), address=address):
            eventually(lambda: "finished" in events(lines))
    assert {each["nsq_trace_id"] for each in lines()} == {str(TRACE_ID)}


def test_on_an_original_nsq_the_switch_is_passed_over_and_that_is_said_once(caplog, lines):
    with Cluster(dialect="original", nsqds=2) as cluster:
        tracing.enable("old")
        cluster.create_topic("old")
        cluster.create_channel("old", "c")
        publish(cluster, *[BODY] * 10, topic="old")
        handled = Handled()
        with nsqsmart.Consumer("old", "c", handled, address=cluster.url):
            eventually(lambda: len(handled.messages) == 10)
            all_finished(cluster, "old")
    assert lines() == []
    said = [record for record in caplog.records if "passed over" in record.getMessage()]
    assert [record.levelname for record in said] == ["INFO"]
    assert "'old'" in said[0].getMessage()
