"""Rules of the protocol that no vector of ours shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.embedded.rawclient import V1
from tests.integration.vectors import Bench

PLAIN, EXTENDED = {"topic": "t", "channels": ["ch"]}, {"topic": "te", "ext": True}
LIMIT = {"flags": ["--max-msg-size=100"]}


def nsqd(folder: Path, dialect: str, *actions: dict) -> Bench:
    bench = Bench({"server": "nsqd", "given": actions}, dialect, folder)
    bench.start(list(actions))
    for action in actions:
        bench.give(action)
    return bench


def sized(line: str, body: bytes) -> bytes:
    return line.encode() + b"\n" + len(body).to_bytes(4) + body


def entry(body: bytes) -> bytes:
    return len(body).to_bytes(4) + body


def batch(line: str, *bodies: bytes) -> bytes:
    return sized(line, len(bodies).to_bytes(4) + b"".join(map(entry, bodies)))


TOO_LONG = "invalid message write size (127) maxMsgSize=126"


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (sized("PUB te 0", b"x" * 100), f"E_PUB_FAILED {TOO_LONG}"),
        (sized("PUB te", b"x" * 100), f"E_PUB_FAILED {TOO_LONG}"),
        (batch("MPUB te 0", b"x", b"x" * 100), f"E_MPUB_FAILED {TOO_LONG}"),
        (sized("PUB_EXT te 0", b"\0\2{}" + b"x" * 96), f"E_PUB_FAILED {TOO_LONG}"),
    ],
)
def test_a_header_takes_its_room_from_the_message(tmp_path, command, answer) -> None:
    with nsqd(tmp_path, "redesigned", LIMIT, EXTENDED) as bench:
        connection = bench.dial()
        assert connection.refused(command) == answer
        assert connection.ask(sized("PUB te 0", b"x" * 99)) == b"OK"
        assert bench.program.topics.local()[0].partition.log.end == 1


def test_a_batch_is_judged_entry_by_entry(tmp_path) -> None:
    short_then_too_big = batch("MPUB_TRACE t 0", b"x" * 8, b"x" * 101)
    with nsqd(tmp_path, "redesigned", LIMIT, PLAIN) as bench:
        connection = bench.dial()
        text = "E_BAD_MESSAGE MPUB invalid message(0) body size 8 for tracing"
        assert connection.refused(short_then_too_big) == text
        assert connection.ended()


def test_what_is_left_of_a_refused_batch_is_taken_for_commands(tmp_path) -> None:
    rest = b"PUB t 0\n\0\0\0\1x"
    bad = batch("MPUB_EXT t 0", b"\0\2{}a").replace(b"\0\0\0\1\0", b"\0\0\0\2\0", 1)
    with nsqd(tmp_path, "redesigned", PLAIN) as bench:
        connection = bench.dial()
        assert connection.refused(bad + rest).startswith("E_EXT_NOT_SUPPORT ")
        assert connection.response() == b"OK"


@pytest.mark.parametrize(("verb", "fatal"), [("FIN", True), ("TOUCH", False), ("REQ", False)])
@pytest.mark.parametrize("number", [bytes(8), b"\xff" * 8])
def test_only_fin_looks_at_the_sign_of_an_id(tmp_path, verb, fatal, number) -> None:
    line = verb.encode() + b" " + number + bytes(8) + (b" 0\n" if verb == "REQ" else b"\n")
    with nsqd(tmp_path, "redesigned", PLAIN) as bench:
        connection = bench.dial()
        assert connection.ask(b"SUB t ch\n") == b"OK"
        text = connection.refused(line)
        assert (text == "E_INVALID Invalid Message ID") is fatal
        assert fatal or text.endswith("failed Message ID not in flight")


@pytest.mark.parametrize("digits", [b"9" * 20, b"9" * 4000])
def test_numbers_of_any_length_are_read(tmp_path, digits) -> None:
    with nsqd(tmp_path, "redesigned", PLAIN) as bench:
        text = bench.dial().refused(sized("PUB t " + digits.decode(), b"x"))
        assert text.endswith("value out of range")
        subscribed = bench.dial()
        assert subscribed.ask(b"SUB t ch\n") == b"OK"
        assert " out of range 0-2500" in subscribed.refused(b"RDY " + digits + b"\n")


@pytest.mark.parametrize(
    ("target", "status", "text"),
    [
        ("/mpub", 400, "MISSING_ARG_TOPIC"),
        ("/mpub?topic=", 400, "MISSING_ARG_TOPIC"),
        ("/mpub?topic=$", 400, "INVALID_ARG_TOPIC"),
        ("/mpub?topic=t&partition=x", 400, 'strconv.Atoi: parsing "x": invalid syntax'),
        ("/mpub?topic=t&partition=9", 404, "E_TOPIC_NOT_EXIST"),
        ("/pub?topic=t&partition=x", 404, "E_TOPIC_NOT_EXIST"),
        ("/pubtrace?topic=t&trace_id=18446744073709551616", 400, "INVALID_TRACE_ID"),
        ("/channel/create?topic=t&channel=", 400, "MISSING_ARG_CHANNEL"),
        (
            "/channel/create?topic=t&partition=x&channel=$",
            400,
            'strconv.Atoi: parsing "x": invalid syntax',
        ),
        ("/channel/create?topic=u&channel=$", 400, "INVALID_ARG_CHANNEL"),
        ("/channel/create?topic=u&channel=c", 404, "E_TOPIC_NOT_EXIST"),
        ("/message/finish?topic=t&channel=ch&msgid=x", 400, "INVALID_REQUEST"),
    ],
)
def test_arguments_are_judged_in_order_and_not_escaped(tmp_path, target, status, text) -> None:
    with nsqd(tmp_path, "redesigned", PLAIN) as bench:
        reply = bench.ask("POST", target, body=b"x", headers=V1)
        assert (reply.status_code, reply.text) == (status, f'{{"message":"{text}"}}')


def test_of_two_arguments_the_first_counts(tmp_path) -> None:
    with nsqd(tmp_path, "original", PLAIN) as bench:
        bench.ask("POST", "/topic/create?topic=first&topic=second")
        assert bench.program.topics.find("first")
        assert not bench.program.topics.find("second")


def test_the_header_of_a_posted_message_is_written_anew(tmp_path) -> None:
    with nsqd(tmp_path, "redesigned", EXTENDED) as bench:
        target = "/pub_ext?topic=te&ext=%7B%22b%22%20:%201,%20%22a%22:2%7D"
        reply = bench.ask("POST", target, body=b"x", headers={"X-Nsqext-Key": "v"})
        assert reply.text == "OK"
        (record,) = bench.program.topics.local()[0].partition.log.records
        assert record.ext.data == b'{"a":2,"b":1,"key":"v"}'


def test_a_compression_level_that_does_not_exist_is_refused(tmp_path) -> None:
    body = b'{"feature_negotiation":true,"deflate":true,"deflate_level":-5}'
    with nsqd(tmp_path, "redesigned") as bench:
        connection = bench.dial()
        connection.send(sized("IDENTIFY", body))
        assert connection.response()
        assert connection.error().startswith("E_IDENTIFY_FAILED IDENTIFY failed ")
        assert connection.ended()


PEER = {
    "broadcast_address": "10.0.0.1",
    "hostname": "h1",
    "tcp_port": 4150,
    "http_port": 4151,
    "version": "0.3.7-HA.1.13.0",
    "distributed_id": "n1",
}


def test_a_lone_lookup_daemon_hands_out_for_writing_what_has_a_channel(tmp_path) -> None:
    with Bench({"server": "nsqlookupd", "given": []}, "redesigned", tmp_path) as bench:
        bench.start([])
        bench.give({"peer": PEER, "register": ["t 0", "t 1", "t 0 ch", "u 0"]})
        writable = bench.ask("GET", "/lookup?topic=t&access=w", headers=V1).json()
        assert list(writable["partitions"]) == ["0"]
        assert list(bench.ask("GET", "/lookup?topic=t", headers=V1).json()["partitions"]) == [
            "0",
            "1",
        ]
        refused = bench.ask("GET", "/lookup?topic=u&access=w", headers=V1)
        assert refused.status_code == 404
        assert refused.json()["message"].startswith("Topic has no channel")
        assert bench.ask("POST", "/disable/write?type=all").status_code == 200
        assert bench.ask("GET", "/lookup?topic=t&access=w", headers=V1).json()["producers"] is None
        assert bench.ask("POST", "/channel/create?topic=t&channel=c").text == (
            '{"message":"INTERNAL_ERROR"}'
        )
