"""The lines of the trace log: what is in them, and that none is built for a disabled logger."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from nsqsmart import tracing
from nsqsmart.client.shared import trace_log
from nsqsmart.client.shared.receipt import Receipt
from nsqsmart.client.shared.trace_log import Life, Line, pass_over, publish_failed, published
from nsqsmart.errors import Attempt, Outcome, PublishFailed
from nsqsmart.names import Address

TRACED = (7).to_bytes(8) + (2**64 - 1).to_bytes(8)
UNTRACED = (8).to_bytes(8) + bytes(8)


@pytest.fixture(autouse=True)
def switch() -> Iterator[None]:
    tracing.enable("t")
    yield
    tracing.set_source(None)


@pytest.fixture
def lines(caplog):
    """What was logged since the last call."""
    caplog.set_level(logging.INFO, "nsqsmart.trace")

    def read() -> list[dict[str, Any]]:
        found = [record for record in caplog.records if record.name == "nsqsmart.trace"]
        for record in found:
            assert record.levelno == logging.INFO
            assert record.nsq_trace == json.loads(record.getMessage())
        caplog.clear()
        return [record.nsq_trace for record in found]

    return read


class Delivery:
    """Stands for a message."""

    timestamp = 1_700_000_000_000_000_001
    attempts = 2

    def __init__(self, message_id: bytes, offset: int | None = None, size: int | None = None):
        self.id, self.offset, self.size = message_id, offset, size
        self._life: Life | None = None


def line(**changes) -> Line:
    log_fields = {
        "topic": "t",
        "channel": "c",
        "partition": 3,
        "nsqd": "a:4150",
        "local": Address("::1", 5000),
        "client_id": "me",
        "can_trace": True,
    }
    return Line(**log_fields | changes)


def without_times(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that are the same in every run; the others are there and make sense."""
    fields = dict(fields)
    moment = datetime.fromisoformat(fields.pop("ts"))
    assert abs(datetime.now(UTC) - moment).total_seconds() < 60
    assert fields.pop("mono_ns") > 0
    assert fields.pop("pid") == os.getpid()
    assert fields.pop("thread") == threading.current_thread().name
    assert fields.pop("sdk").startswith("nsqsmart/")
    return fields


# ------------------------------------------------------------------------------------ publishing


def test_a_published_message(lines):
    published(Receipt("t", 3, "a:4150", 2, 7, 2**64 - 1, 2**40, 35), 0.0125, "me")
    (fields,) = lines()
    assert without_times(fields) == {
        "v": 1,
        "event": "published",
        "nsq_trace_id": "18446744073709551615",
        "nsq_internal_id": "7",
        "nsq_disk_offset": "1099511627776",
        "nsq_disk_size": 35,
        "topic": "t",
        "partition": 3,
        "nsqd_addr": "a:4150",
        "duration_us": 12500,
        "retries": 1,
        "client_id": "me",
    }


def test_a_publish_that_failed(lines):
    attempts = (
        Attempt("a:4150", 3, "E_FAILED_ON_NOT_LEADER", 0.1),
        Attempt("b:4150", 3, "ConnectionLost", 0.2),
    )
    error = PublishFailed(
        "oops", outcome=Outcome.UNCERTAIN, code="ConnectionLost", attempts=attempts
    )
    publish_failed("t", 9, error, 0.3, "me")
    (fields,) = lines()
    assert without_times(fields) == {
        "v": 1,
        "event": "publish_failed",
        "nsq_trace_id": "9",
        "topic": "t",
        "partition": 3,
        "nsqd_addr": "b:4150",
        "duration_us": 300_000,
        "retries": 1,
        "outcome": "uncertain",
        "error": "ConnectionLost",
        "client_id": "me",
    }


def test_a_publish_that_failed_before_any_attempt(lines):
    publish_failed("t", 0, PublishFailed("oops"), 0.0, "me")
    (fields,) = lines()
    assert (fields["error"], fields["outcome"], fields["retries"]) == (
        "PublishFailed",
        "not_sent",
        0,
    )
    assert fields["nsq_trace_id"] == "0"
    assert not {"partition", "nsqd_addr"} & set(fields)


def test_what_is_not_traced_is_not_logged(lines):
    published(Receipt("t", 3, "a:4150"), 0.1, "me")
    publish_failed("t", None, PublishFailed("oops"), 0.1, "me")
    assert lines() == []


def test_nothing_is_built_while_the_logger_is_off(caplog, monkeypatch):
    caplog.set_level(logging.WARNING, "nsqsmart.trace")
    monkeypatch.setattr(trace_log, "make_fields", None)
    published(Receipt("t", 3, "a:4150", 1, 7, 9, 0, 35), 0.1, "me")
    publish_failed("t", 9, PublishFailed("oops"), 0.1, "me")
    delivery = Delivery(TRACED)
    line().begin([delivery])
    assert delivery._life is None


# ------------------------------------------------------------------------------------- consuming


def test_the_life_of_a_message(lines):
    delivery = Delivery(TRACED, 2**40, 35)
    line().begin([delivery])
    assert delivery._life is not None
    delivery._life.note("requeued", 1.5)
    delivery._life.error = "ValueError"
    delivery._life.note("requeued", 0.0)
    received, requeued, failed = lines()
    assert received["duration_us"] < requeued["duration_us"] + 1 < failed["duration_us"] + 2
    assert (requeued["event"], requeued["delay_ms"]) == ("requeued", 1500)
    assert (failed["error"], failed["delay_ms"]) == ("ValueError", 0)
    assert not {"error"} & set(requeued)
    del received["duration_us"]
    assert without_times(received) == {
        "v": 1,
        "event": "received",
        "nsq_trace_id": "18446744073709551615",
        "nsq_internal_id": "7",
        "nsq_disk_offset": "1099511627776",
        "nsq_disk_size": 35,
        "topic": "t",
        "partition": 3,
        "channel": "c",
        "attempts": 2,
        "nsq_timestamp_ns": "1700000000000000001",
        "local_addr": "[::1]:5000",
        "nsqd_addr": "a:4150",
        "client_id": "me",
    }


@pytest.mark.parametrize("delay", [None, float("inf"), float("nan")])
def test_a_wait_without_an_end_has_no_delay(lines, delay):
    Life({}).note("blocked", delay)
    (fields,) = lines()
    assert "delay_ms" not in fields


def test_only_messages_with_a_trace_id_have_a_life(lines):
    deliveries = [Delivery(UNTRACED), Delivery(TRACED), Delivery(UNTRACED)]
    line(local=None).begin(deliveries)
    assert [delivery._life is not None for delivery in deliveries] == [False, True, False]
    (fields,) = lines()
    assert not {"nsq_disk_offset", "nsq_disk_size", "local_addr"} & set(fields)


def test_the_switch_decides_when_a_message_is_received(lines):
    early, late = Delivery(TRACED), Delivery(TRACED)
    line().begin([early])
    tracing.disable("t")
    line().begin([late])
    early._life.note("finished")
    assert late._life is None
    assert [fields["event"] for fields in lines()] == ["received", "finished"]


def test_any_rate_above_0_logs_every_message_that_was_drawn(lines):
    tracing.enable("t", rate=0.000001)
    line().begin([Delivery(TRACED) for _ in range(20)])
    assert len(lines()) == 20


def test_ids_of_an_original_nsqd_hold_no_trace_id(lines, caplog):
    delivery = Delivery(b"0123456789abcdef")
    line(can_trace=False, partition=None).begin([delivery])
    assert delivery._life is None
    assert lines() == []


def test_that_it_is_passed_over_is_said_once_a_topic(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "nsqsmart")
    monkeypatch.setattr(trace_log, "_passed_over", set())
    monkeypatch.setattr(trace_log, "_MOST_REMEMBERED", 2)
    for topic in ("one", "one", "two", "three", "two", "three"):
        pass_over(topic, "a:4150")
    said = [record.getMessage() for record in caplog.records]
    assert [text.split("'")[1] for text in said] == ["one", "two"]
    assert all("a:4150 is an original nsqd" in text for text in said)
