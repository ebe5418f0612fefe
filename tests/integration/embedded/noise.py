"""Streams that are almost what a server expects: known pieces in any order, some damaged."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from nsqsmart.wire import commands


def sized(line: bytes, body: bytes) -> bytes:
    return line + b"\n" + len(body).to_bytes(4) + body


def identify(**document: Any) -> bytes:
    return commands.identify(json.dumps({"feature_negotiation": True, **document}).encode())


_ID = bytes(7) + b"\x01" + bytes(8)
_RULE = {"filter_ext_key": "a", "filter_data": "b"}
_PEER = {"broadcast_address": "h", "hostname": "h", "tcp_port": 1, "http_port": 2, "version": "1"}

NSQD = [
    commands.MAGIC_V2,
    identify(heartbeat_interval=1000, sample_rate=50, msg_timeout=1000),
    identify(snappy=True),
    identify(deflate=True, deflate_level=3),
    identify(extend_support=True, desired_tag="x", ext_filter={"type": 1, **_RULE}),
    identify(extend_support=True, ext_filter={"type": 4, "filter_data_list": [_RULE]}),
    commands.auth(b"secret"),
    commands.sub("t", "ch"),
    commands.sub("t", "c#ephemeral", 0),
    commands.sub("te", "ch", 0),
    commands.sub_advanced("t", "ch", 0),
    commands.sub_ordered("to", "ch", 0),
    b"SUB_ADVANCED t ch 0 timestamp:99999999999\n",
    commands.rdy(5),
    commands.fin(_ID),
    commands.req(_ID, 0),
    commands.touch(_ID),
    commands.CLS,
    commands.NOP,
    commands.pub("t", b"hello"),
    commands.mpub("t", [b"a", b"bb"], 0),
    commands.pub_trace("t", b"x", 9, 0),
    commands.pub_ext("te", b"x", b'{"##trace_id":"9"}', 0),
    commands.dpub("t", b"x", 100),
    b"INTERNAL_CREATE_TOPIC t2 0 true\n",
]
LOOKUPD = [
    sized(b"IDENTIFY", json.dumps(_PEER).encode()),
    sized(b"IDENTIFY", json.dumps({**_PEER, "distributed_id": "x"}).encode()),
    b"REGISTER t\n",
    b"REGISTER t 0 c\n",
    b"UNREGISTER t 0 c\n",
    b"UNREGISTER t c\n",
    b"PING\n",
]
_TARGETS = [
    b"/ping",
    b"/stats?format=json",
    b"/pub?topic=t&defer=10",
    b"/mpub?topic=t&binary=1",
    b"/pub_ext?topic=te&ext=%7B%22a%22:1%7D",
    b"/pubtrace?topic=t&partition=0&trace_id=5",
    b"/channel/create?topic=t&channel=c",
    b"/channel/setoffset?topic=t&channel=ch",
    b"/channel/setorder?topic=t&channel=ch&order=true",
    b"/message/finish?topic=t&channel=ch&msgid=1",
    b"/lookup?topic=t&access=w&metainfo=1&partition=0",
    b"/nodes",
    b"/topic/create?topic=t3&partition_num=1&replicator=1",
    b"/topic/delete?topic=t3&partition=**",
    b"/topic/tombstone?topic=t&node=x:1",
]
_BODIES = [
    b"\r\n",
    b"Accept: application/vnd.nsq; version=1.0\r\n\r\n",
    b"Content-Length: 10\r\n\r\nspecial:-1",
    b"Content-Length: 9\r\n\r\n\0\0\0\1\0\0\0\1a",
    b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
]
HTTP = [
    method + b" " + target + b" HTTP/1.1\r\n" + rest
    for method, first in ((b"GET", 0), (b"POST", 1))
    for target in _TARGETS
    for rest in _BODIES[first::2]
]
_JUNK = [
    b"\0",
    b"\n",
    b" ",
    b"\r\n",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"-1",
    b"9" * 30,
    b"9" * 5000,
    b'"',
    b"{",
    b"[" * 3000,
    b"\xed\xa0\x80",
    b"%ff",
    b"\\ud800",
    b"a" * 70,
    b"null",
    b"1e999",
    b"\xb2",
]


def damaged(random: Random, piece: bytes) -> bytes:
    """*piece* with up to five places changed, added or gone."""
    data = bytearray(piece)
    for _ in range(random.choice([0, 0, 1, 1, 2, 5])):
        start = random.randrange(len(data) + 1)
        end = start + random.choice([0, 1, 4])
        data[start:end] = random.choice([*_JUNK, b"", b"", random.randbytes(random.randrange(12))])
    return bytes(data)


def stream(random: Random, pieces: list[bytes], magic: bytes) -> bytes:
    """What one client sends."""
    if random.random() < 0.05:
        return random.randbytes(random.randrange(3000))
    chosen = [damaged(random, random.choice(pieces)) for _ in range(random.randrange(1, 8))]
    return (magic if random.random() < 0.95 else b"") + b"".join(chosen)
