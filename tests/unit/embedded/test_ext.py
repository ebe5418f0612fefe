"""Extension headers and the filters on them."""

from __future__ import annotations

from typing import Any

import pytest

from nsqsmart.embedded.broker.ext import (
    BadHeader,
    BadTraceId,
    make_filter,
    only_internal,
    read_header,
)
from nsqsmart.embedded.broker.records import Extension, Record


@pytest.mark.parametrize(
    ("data", "trace", "tag"),
    [
        (b'{"a":"b"}', None, ""),
        (b'{"##trace_id":"18446744073709551615"}', 2**64 - 1, ""),
        (b'{"##trace_id":"0","##client_dispatch_tag":"red"}', 0, "red"),
        (b'{"##client_dispatch_tag":7}', None, ""),
        (b"[]", None, ""),
    ],
)
def test_what_the_server_reads_in_a_header(data: bytes, trace: int | None, tag: str) -> None:
    extension, found = read_header(data)
    assert (extension.data, extension.tag, found) == (data, tag, trace)


@pytest.mark.parametrize("data", [b"", b"{", b"x", b"[" * 100_000])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(BadHeader, match="cannot parse JSON: "):
        read_header(data)


@pytest.mark.parametrize("text", ["5", "null", '""', '"x"', '"-1"', '"18446744073709551616"'])
def test_what_is_no_trace_id_is_refused(text: str) -> None:
    with pytest.raises(BadTraceId):
        read_header(f'{{"##trace_id":{text}}}'.encode())


@pytest.mark.parametrize(
    ("data", "internal"),
    [(b"{}", True), (b'{"##a":1,"zan_test":1}', True), (b'{"a":1}', False), (b"[]", False)],
)
def test_only_the_servers_own_names_may_be_dropped(data: bytes, internal: bool) -> None:
    assert only_internal(read_header(data)[0]) is internal


def record(data: bytes | None) -> Record:
    ext: Extension | None = None if data is None else read_header(data)[0]
    return Record(b"", b"", 0, 0, 0, ext)


RULE = {"filter_ext_key": "k", "filter_data": "a.c"}
RULES = [
    {"filter_ext_key": "k", "filter_data": "a"},
    {"filter_ext_key": "x.y", "filter_data": "b"},
]


@pytest.mark.parametrize(
    ("rules", "data", "wanted"),
    [
        ({"type": 1, **RULE}, b'{"k":"a.c"}', True),
        ({"type": 1, **RULE}, b'{"k":"abc"}', False),
        ({"type": 1, **RULE, "inverse": True}, b'{"k":"abc"}', True),
        ({"type": 1, **RULE, "inverse": True}, None, True),
        ({"type": 1, **RULE}, b"[]", False),
        ({"type": 2, **RULE}, b'{"k":"xabcx"}', True),
        ({"type": 2, **RULE}, b'{"k":7}', False),
        ({"type": 3, "filter_ext_key": "k", "filter_data": "a*"}, b'{"k":"abc"}', True),
        ({"type": 3, "filter_ext_key": "k", "filter_data": "a*"}, b'{"k":"xabc"}', False),
        ({"type": 4, "filter_ext_key": "all", "filter_data_list": RULES}, b'{"k":"a"}', False),
        ({"type": 4, "filter_ext_key": "any", "filter_data_list": RULES}, b'{"k":"a"}', True),
        (
            {"type": 4, "filter_ext_key": "all", "filter_data_list": RULES},
            b'{"k":"a","x":{"y":"b"}}',
            True,
        ),
        ({"type": 4, "filter_ext_key": "no", "filter_data_list": RULES}, b'{"k":"a"}', False),
    ],
)
def test_filters(rules: dict[str, Any], data: bytes | None, wanted: bool) -> None:
    wants = make_filter(rules)
    assert wants is not None
    assert wants(record(data)) is wanted


@pytest.mark.parametrize(
    "rules",
    [
        None,
        {},
        {"type": 0},
        {"type": 1, "filter_ext_key": "k"},
        {"type": 2, "filter_ext_key": "k", "filter_data": "("},
        {"type": 4, "filter_ext_key": "all", "filter_data_list": []},
        {"type": 4, "filter_ext_key": "all", "filter_data_list": [{}]},
        {"type": 9, **RULE},
    ],
)
def test_invalid_rules_let_everything_pass(rules: dict[str, Any] | None) -> None:
    assert make_filter(rules) is None
