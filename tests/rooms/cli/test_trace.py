"""``trace``: a message's life out of logs."""

from __future__ import annotations

import gzip
import json
import logging

import pytest

from nsqsmart import Consumer, Producer, Requeue, tracing
from nsqsmart.cli.commands.trace import read_event

SERVER = (
    b"[2018-02-02 21:59:53.123] INFO: [TRACE] topic orders-1 trace id 77: message "
    b"1125899906842625 ( 1125899906842625) put ok from client 127.0.0.1:5000 at offset: 120, "
    b"cost 3 at time 1517579993123456789\n"
    b"[TRACE] topic orders channel billing trace id 77: message 1125899906842625 (77, offset: 120, "
    b"x) consume state FIN from client c(12) at time: 1517579993223456789, attempt: 2\n"
)


@pytest.fixture
def logs(redesigned, tmp_path):
    """A message that was requeued once, and another one."""
    file = tmp_path / "logs" / "trace.log"
    file.parent.mkdir()
    handler = logging.FileHandler(file)
    log = logging.getLogger("nsqsmart.trace")
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    tracing.enable("orders")
    done: list[int] = []

    def handle(message):
        done.append(message.trace_id)
        if message.trace_id == 77 and message.attempts == 1:
            raise Requeue(0, backoff=False)
        if len(done) == 3:
            consumer.close()

    with Producer(redesigned.url) as producer:
        producer.publish("orders", b"a", trace_id=77)
        producer.publish("orders", b"b", trace_id=78)
    consumer = Consumer("orders", "billing", handle, address=redesigned.url, workers=1)
    consumer.run()
    tracing.disable("orders")
    log.removeHandler(handler)
    handler.close()
    log.level, log.propagate = before
    return file


def test_the_life_in_its_order(logs, nsqsmart):
    (life,) = nsqsmart.records("trace", "77", logs)
    assert [each["event"] for each in life["events"]] == [
        "published", "received", "started", "requeued", "received", "started", "finished",
    ]  # fmt: skip
    assert life["trace_id"] == "77"
    assert life["events"][1]["channel"] == "billing"
    assert life["events"][4]["facts"]["attempts"] == "2"
    assert nsqsmart.records("trace", "--internal", life["internal_id"], logs.parent) == [life]
    assert nsqsmart.records("trace", "0x4d", str(logs.parent / "*.log")) == [life]


def test_for_people(logs, nsqsmart):
    code, out, _ = nsqsmart("trace", "77", logs)
    head, names, *rows = out.splitlines()
    assert code == 0
    assert head.startswith("orders partition 0, internal id ")
    assert names.split()[:3] == ["after", "event", "channel"]
    assert rows[0].startswith("+0.000 ms")
    assert "attempt 2" in rows[-1]


def test_packed_logs_and_stdin(logs, nsqsmart, tmp_path):
    packed = tmp_path / "trace.log.gz"
    packed.write_bytes(gzip.compress(logs.read_bytes()))
    whole = nsqsmart.records("trace", "77", logs)
    assert nsqsmart.records("trace", "77", packed) == whole
    code, out, _ = nsqsmart.run("trace", "77", "--json", stdin=logs.read_bytes())
    assert (code, [json.loads(out)]) == (0, whole)


def test_lines_of_a_server(nsqsmart, tmp_path):
    log = tmp_path / "nsqd.log"
    log.write_bytes(SERVER)
    (life,) = nsqsmart.records("trace", "77", log)
    assert (life["topic"], life["partition"]) == ("orders", 1)
    assert [(each["event"], each["channel"]) for each in life["events"]] == [
        ("put", None),
        ("fin", "billing"),
    ]
    assert life["events"][1]["at_us"] - life["events"][0]["at_us"] == 100_000


def test_a_trace_id_that_is_not_unique_names_several(logs, nsqsmart):
    lines = logs.read_text().replace('"nsq_trace_id":"78"', '"nsq_trace_id":"77"')
    logs.write_text(lines)
    assert len(nsqsmart.records("trace", "77", logs)) == 2
    code, _, err = nsqsmart("trace", "77", logs, "--topic", "clicks")
    assert code == 1
    assert "of topic clicks" in err


def test_an_id_that_is_nowhere_and_a_log_that_is_not_there(logs, nsqsmart):
    code, _, err = nsqsmart("trace", "79", logs)
    assert (code, err) == (1, "nsqsmart trace: no message with trace id 79 in 1 file\n")
    code, _, err = nsqsmart("trace", "79", "missing*")
    assert code == 1
    assert "'missing*'" in err


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"77",
        b'{"v":77}',
        b'{"v":1,"ts":"x","event":"e","topic":"t","nsq_trace_id":"77"}',
        b'{"v":1,"ts":7,"event":"e","topic":"t","nsq_trace_id":"77"}',
        b'{"v":[' + b"[" * 100_000 + b"77}",
        b"[TRACE] topic 77",
        b"\xff\xfe77",
    ],
)
def test_what_is_no_event_is_passed_over(line):
    assert read_event(line) is None
