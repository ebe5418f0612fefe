"""From trace logs to lives: what joins, what does not, and what is exact."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'nsqsmart[spark]'")

from pyspark.sql import Row

from nsqsmart.spark.report.counting import joined
from nsqsmart.spark.report.figures import Term
from tests.rooms.spark.jobs.conftest import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

BEGIN = datetime(2026, 3, 1, 7, 0, tzinfo=UTC)
BIG = 2**64 - 1
"""A trace id that Spark's BIGINT cannot hold, and that several messages have."""
IN_1 = 1 << 50
"""Where the internal ids of partition 1 begin."""
SERVER = "I0301 07:00:00.000000   19207 tracer.go:64] nsqd.(*LogMsgTracer)."


def line(number: int, event: str, after: float, **more: Any) -> str:
    """A client's line *after* so many seconds."""
    moment = BEGIN + timedelta(seconds=after)
    fields = {
        "v": 1,
        "ts": moment.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "mono_ns": 1,
        "event": event,
        "nsq_trace_id": str(BIG),
        "nsq_internal_id": str(IN_1 + number),
        "topic": "orders",
        "partition": 1,
        "nsqd_addr": "n1:4150",
    }
    return json.dumps(
        {name: value for name, value in (fields | more).items() if value is not None},
        separators=(",", ":"),
    )


def life(number: int, whole: float, **more: Any) -> list[str]:
    """Published in 10 ms, received 0.1 s later, finished *whole* seconds after it began."""
    by = {"channel": "c", "attempts": 1, "client_id": "w1", **more}
    return [
        line(number, "published", 0.01, duration_us=10_000),
        line(number, "received", 0.1, **by),
        line(number, "finished", whole, duration_us=5_000, **by),
    ]


def put(number: int, partition: int, after: float) -> str:
    at = int((BEGIN + timedelta(seconds=after)).timestamp() * 10**6) * 1000
    return (
        f"{SERVER}TracePub [TRACE] topic on-server-{partition} trace id {BIG}: message {number}( 0)"
        f" put PUB at offset: 0, current count: 1 at time {at}, delayed: 0"
    )


def did(number: int, state: str, after: float, attempt: int = 1) -> str:
    at = int((BEGIN + timedelta(seconds=after)).timestamp() * 10**6) * 1000
    return (
        f"{SERVER}TraceSub [TRACE] topic on-server channel billing trace id {BIG}: message {number}"
        f" (ts: 1, offset: 32, pri:1795) consume state {state} from client 127.0.0.1:43556(1) at "
        f"time: {at} cost: 3571489, attempt: {attempt}"
    )


def test_every_life_has_its_state(run: Run, spark: SparkSession, tmp_path: Path) -> None:
    again = {"channel": "c", "attempts": 2, "client_id": "w2"}
    client = [
        *life(1, 0.2),
        *life(2, 0.2)[:2],  # received, and no answer
        *life(3, 9.0),  # late
        *life(4, 0.2)[:2],
        line(4, "requeued", 0.15, channel="c", attempts=1, delay_ms=10),
        line(4, "received", 0.3, **again),
        line(4, "finished", 0.4, duration_us=100_000, **again),
        line(5, "published", 0.01),  # no consumer got it
        *life(6, 0.2)[:2],
        line(6, "gave_up", 0.15, channel="c", attempts=1),
        line(6, "finished", 0.16, channel="c", attempts=1),
        line(7, "publish_failed", 0.1, nsq_internal_id=None, partition=None, error="E_X"),
        line(8, "published", 0.1, nsq_internal_id=None),  # an extended topic's batch
        line(9, "published", 0.1, topic="silent"),  # no channel in the logs
        # Another partition has an id like that; another channel lives its own life.
        *[each.replace('"partition":1', '"partition":0') for each in life(1, 0.2)],
        "2026-03-01 INFO something else",
        '{"v":1,"ts":"broken',
        "INFO nsqsmart.trace " + life(1, 0.5, channel="other")[2],
    ]
    in_1 = IN_1 + 77
    server = [
        *(put(in_1, 1, 0.0), did(in_1, "READ_QUEUE", 0.1, 0), did(in_1, "START", 0.1)),
        *(did(in_1, "TIMEOUT", 0.2), did(in_1, "START", 0.3, 2), did(in_1, "FIN", 0.4, 2)),
        put(78, 0, 0.0),
    ]
    (tmp_path / "client.jsonl").write_text("\n".join(client))
    (tmp_path / "nsqd.log").write_text("\n".join(server))
    code, summary = run(
        *("trace", tmp_path / "client.jsonl", tmp_path / "nsqd.log", "--late", "5s"),
        *("--out", tmp_path / "report.html", "--table", tmp_path / "lives"),
    )
    assert code == 0
    found = {
        (each["topic"], each["channel"]): {
            name: each[name]
            for name in ("messages", "ok", "redelivered", "unconsumed", "late", "gave_up")
        }
        for each in summary["channels"]
    }

    def states(*counts: int) -> dict[str, int]:
        names = ("messages", "ok", "redelivered", "unconsumed", "late", "gave_up")
        return dict(zip(names, counts, strict=True))

    assert found == {
        ("orders", "c"): states(7, 3, 1, 2, 1, 1),
        ("orders", "other"): states(7, 1, 0, 6, 0, 0),
        ("on-server", "billing"): states(2, 0, 1, 1, 0, 0),
        ("silent", None): states(1, 0, 0, 1, 0, 0),
    }
    assert summary["dropped"] == {
        "no trace event": 2,
        "published without an internal id or a partition": 1,
    }
    assert (summary["published"], summary["publish_failed"]) == (10, 1)
    first = next(each for each in summary["channels"] if each["channel"] == "c")
    assert first["whole_us"]["p100"] == 9_000_000
    assert first["to_receive_us"]["p50"] == 100_000
    assert first["to_finish_us"]["p100"] == 100_000
    rows = spark.read.parquet(str(tmp_path / "lives")).collect()
    assert {row.trace_id for row in rows} == {str(BIG)}
    ids = {(row.partition, row.internal_id) for row in rows if row.topic == "on-server"}
    assert ids == {(1, str(in_1)), (0, "78")}
    page = (tmp_path / "report.html").read_text()
    assert "orders / c" in page
    assert "9.00 s" in page
    assert "1 message given up" in page


def test_logs_without_an_event_are_refused(run: Run, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "other.log").write_text("nothing\nof ours\n")
    code, summary = run("trace", tmp_path / "other.log", "--out", tmp_path / "r.html")
    assert code == 1
    assert "there is no trace event in" in summary["error"]
    assert not (tmp_path / "r.html").exists()
    code, summary = run("trace", tmp_path / "missing.log", "--out", tmp_path / "r.html")
    assert code == 1
    assert "missing.log" in summary["error"]


def test_what_one_nsqd_took_in_a_row_is_one_term() -> None:
    rows = [
        *(Row(topic="t", partition=0, nsqd="a", messages=2, begins=n, ends=n + 5) for n in (20, 0)),
        Row(topic="t", partition=0, nsqd="b", messages=1, begins=30, ends=30),
        Row(topic="t", partition=0, nsqd="a", messages=1, begins=40, ends=44),
        Row(topic="s", partition=3, nsqd="b", messages=9, begins=7, ends=7),
    ]
    assert joined(rows) == [
        Term("s", 3, "b", 7, 7, 9),
        Term("t", 0, "a", 0, 25, 4),
        Term("t", 0, "b", 30, 30, 1),
        Term("t", 0, "a", 40, 44, 1),
    ]
