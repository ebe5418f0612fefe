"""/config/OPTION: what an nsqd was told, and the little that may be changed."""

from __future__ import annotations

import json

from nsqsmart.embedded.nsqd.options import NsqdOptions
from nsqsmart.embedded.nsqd.program import NsqdProgram
from nsqsmart.names import Dialect
from nsqsmart.wire import commands
from tests.helpers import eventually
from tests.integration.embedded.rawclient import http


def message(text: str) -> dict[str, str]:
    return {"message": text}


def test_options_of_an_original_nsqd(original) -> None:
    address = original.nsqds[0].http_address
    host, port = original.nsqds[0].tcp_address
    assert http("GET", address, "/config/tcp_address") == (200, f"{host}:{port}")
    for name, value in {
        "log_level": 2,
        "mem_queue_size": 10000,
        "msg_timeout": 60_000_000_000,
        "nsqlookupd_tcp_addresses": [],
        "tls_required": 0,
        "snappy": True,
        "tls_cert": "",
    }.items():
        assert http("GET", address, f"/config/{name}") == (200, value)
    assert http("PUT", address, "/config/log_level", body=b"debug") == (200, 1)
    assert http("GET", address, "/config/log_level") == (200, 1)
    invalid, unknown = message("INVALID_VALUE"), message("INVALID_OPTION")
    for name, body, answer in (
        ("log_level", b"x", (400, invalid)),
        ("log_level", b"", (413, invalid)),
        ("nsqlookupd_tcp_addresses", b"x", (400, invalid)),
        ("mem_queue_size", b"1", (400, unknown)),
        ("allow_ext_compatible", b"true", (400, unknown)),
    ):
        assert http("PUT", address, f"/config/{name}", body=body) == answer
    assert http("GET", address, "/config/nope") == (400, unknown)
    assert http("POST", address, "/config/log_level") == (405, message("METHOD_NOT_ALLOWED"))
    assert http("GET", address, "/config") == (404, message("NOT_FOUND"))


def test_options_of_a_redesigned_nsqd(redesigned, connect) -> None:
    redesigned.create_topic("t")
    leader = redesigned.leader("t")
    address = leader.http_address
    assert http("GET", address, "/config/max_conn_for_client") == (200, 15000)
    assert http("GET", address, "/config/verbose") == (200, False)
    refused = http("PUT", address, "/config/allow_ext_compatible", body=b"x")
    assert refused == (400, message("INVALID_VALUE"))
    header = b'{"##client_dispatch_tag":"a"}'
    extended = commands.pub_ext("t", b"x", header, 0)
    producer = connect(leader)
    assert producer.refused(extended).startswith("E_EXT_NOT_SUPPORT")
    assert http("PUT", address, "/config/allow_ext_compatible", body=b"true") == (200, True)
    assert producer.ask(extended) == b"OK"


def test_an_nsqd_turns_to_the_lookup_daemons_it_is_told_of(original, tmp_path) -> None:
    program = NsqdProgram(NsqdOptions(dialect=Dialect.ORIGINAL, data_path=tmp_path), ())
    program.start()
    try:
        address, lookupd = program.nsqd.http_address, original.lookupds[1]
        assert http("POST", address, "/topic/create?topic=t") == (200, "")

        def producers() -> list[int]:
            answer = http("GET", lookupd.http_address, "/lookup?topic=t")[1]
            return [peer["tcp_port"] for peer in answer.get("producers", [])]

        for told, known in (([lookupd], [program.nsqd.tcp_address[1]]), ([], [])):
            addresses = [f"127.0.0.1:{each.tcp_address[1]}" for each in told]
            body = json.dumps(addresses).encode()
            changed = http("PUT", address, "/config/nsqlookupd_tcp_addresses", body=body)
            assert changed == (200, addresses)
            eventually(lambda known=known: producers() == known)
    finally:
        program.stop()
