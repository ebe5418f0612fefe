"""IDENTIFY as the servers judge and answer it (protocol#identify)."""

from __future__ import annotations

import json

import pytest

from nsqsmart.names import Dialect
from nsqsmart.wire.identify import Offer, decode_grant
from nsqsmart.wire.identify_server import (
    IdentifyRefused,
    Policy,
    Settled,
    encode_reply,
    settle,
    unidentified,
)

ORIGINAL = Policy(dialect=Dialect.ORIGINAL, version="1.3.0")
REDESIGNED = Policy(dialect=Dialect.REDESIGNED, version="0.3.7-HA.1.13.0")
BOTH = pytest.mark.parametrize("policy", [ORIGINAL, REDESIGNED], ids=["original", "redesigned"])


def asked(policy: Policy, **document: object) -> Settled:
    return settle(json.dumps(document).encode(), policy, unidentified(policy, "10.0.0.1"))


def reply(policy: Policy, **document: object) -> bytes:
    return encode_reply(asked(policy, feature_negotiation=True, **document), policy)


def refused(policy: Policy, body: bytes) -> tuple[str, str]:
    with pytest.raises(IdentifyRefused) as caught:
        settle(body, policy, unidentified(policy, "10.0.0.1"))
    return caught.value.code, caught.value.text


def test_the_default_replies_are_those_of_the_servers() -> None:
    assert reply(ORIGINAL) == (
        b'{"max_rdy_count":2500,"version":"1.3.0","max_msg_timeout":900000,"msg_timeout":60000,'
        b'"tls_v1":false,"deflate":false,"deflate_level":6,"max_deflate_level":6,"snappy":false,'
        b'"sample_rate":0,"auth_required":false,"output_buffer_size":16384,'
        b'"output_buffer_timeout":250,"topology_region":"","topology_zone":""}'
    )
    assert reply(REDESIGNED) == (
        b'{"max_rdy_count":2500,"version":"0.3.7-HA.1.13.0","max_msg_timeout":900000,'
        b'"msg_timeout":60000,"tls_v1":false,"deflate":false,"deflate_level":0,'
        b'"max_deflate_level":6,"snappy":false,"sample_rate":0,"auth_required":false,'
        b'"output_buffer_size":100,"output_buffer_timeout":50}'
    )


@BOTH
def test_without_feature_negotiation_the_answer_is_ok_and_nothing_is_granted(
    policy: Policy,
) -> None:
    settled = asked(policy, snappy=True, deflate=True, tls_v1=True)
    assert encode_reply(settled, policy) == b"OK"
    assert (settled.snappy, settled.deflate, settled.tls) == (False, False, False)


@BOTH
def test_our_own_offer_is_understood(policy: Policy) -> None:
    offer = Offer(
        client_id="c",
        hostname="h",
        user_agent="u",
        heartbeat_interval=5,
        msg_timeout=2,
        snappy=True,
    )
    settled = settle(offer.encode(), policy, unidentified(policy, "10.0.0.1"))
    assert (settled.client_id, settled.hostname, settled.user_agent) == ("c", "h", "u")
    assert (settled.heartbeat_interval, settled.msg_timeout) == (5000, 2000)
    grant = decode_grant(encode_reply(settled, policy))
    assert (grant.snappy, grant.msg_timeout, grant.dialect) == (True, 2.0, policy.dialect)


@BOTH
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"1", b"NaN", b'{"sample_rate":NaN}', b"{} {}", b"[" * 100_000],
    ids=lambda body: body[:12].decode(),
)
def test_what_is_no_object_cannot_be_decoded(policy: Policy, body: bytes) -> None:
    assert refused(policy, body) == ("E_BAD_BODY", "IDENTIFY failed to decode JSON body")


@BOTH
@pytest.mark.parametrize(
    "body",
    [
        b'{"heartbeat_interval":5000.0}',
        b'{"heartbeat_interval":"5000"}',
        b'{"heartbeat_interval":true}',
        b'{"heartbeat_interval":9223372036854775808}',
        b'{"feature_negotiation":1}',
        b'{"client_id":7}',
        # Decoding comes before judging, whatever the order of the fields.
        b'{"heartbeat_interval":1,"deflate_level":"x"}',
    ],
)
def test_fields_have_one_type(policy: Policy, body: bytes) -> None:
    assert refused(policy, body) == ("E_BAD_BODY", "IDENTIFY failed to decode JSON body")


def test_fields_of_the_other_dialect_are_not_looked_at() -> None:
    assert asked(ORIGINAL, desired_tag=1, extend_support=2, short_id=3).client_id == ""
    assert refused(REDESIGNED, b'{"desired_tag":1}')[0] == "E_BAD_BODY"
    assert refused(REDESIGNED, b'{"ext_filter":[]}')[0] == "E_BAD_BODY"


@BOTH
def test_null_is_absent_and_keys_have_any_case(policy: Policy) -> None:
    before = unidentified(policy, "10.0.0.1")
    assert settle(b"null", policy, before).heartbeat_interval == 30_000
    assert asked(policy, heartbeat_interval=None).heartbeat_interval == 30_000
    assert asked(policy, Heartbeat_Interval=2000, unknown={"x": 1}).heartbeat_interval == 2000
    twice = b'{"sample_rate":1,"SAMPLE_RATE":2}'
    assert settle(twice, policy, before).sample_rate == 2


@BOTH
@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("heartbeat_interval", 999, "heartbeat interval (999)"),
        ("heartbeat_interval", 60_001, "heartbeat interval (60001)"),
        ("heartbeat_interval", -2, "heartbeat interval (-2)"),
        ("sample_rate", 100, "sample rate (100)"),
        ("sample_rate", -1, "sample rate (-1)"),
        ("msg_timeout", 999, "msg timeout (999)"),
        ("msg_timeout", 900_001, "msg timeout (900001)"),
        ("output_buffer_size", 63, "output buffer size (63)"),
        ("output_buffer_size", -2, "output buffer size (-2)"),
        ("output_buffer_timeout", -2, "output buffer timeout (-2)"),
        ("output_buffer_timeout", 30_001, "output buffer timeout (30001)"),
    ],
)
def test_values_out_of_range_are_refused(policy: Policy, field: str, value: int, text: str) -> None:
    body = json.dumps({field: value}).encode()
    assert refused(policy, body) == ("E_BAD_BODY", f"IDENTIFY {text} is invalid")


def test_the_original_server_refuses_what_the_redesigned_one_bends() -> None:
    assert refused(ORIGINAL, b'{"output_buffer_size":65537}')[1].endswith("(65537) is invalid")
    assert asked(REDESIGNED, output_buffer_size=65_537).output_buffer_size == 65_536
    assert refused(ORIGINAL, b'{"output_buffer_timeout":24}')[1].endswith("(24) is invalid")
    assert asked(REDESIGNED, output_buffer_timeout=1).output_buffer_timeout == 10
    assert asked(REDESIGNED, output_buffer_timeout=24).output_buffer_timeout == 24
    assert refused(REDESIGNED, b'{"output_buffer_timeout":1001}')[1].endswith("is invalid")
    assert asked(ORIGINAL, output_buffer_timeout=1001).output_buffer_timeout == 1001


def test_the_first_failure_wins_in_the_dialects_order() -> None:
    body = b'{"output_buffer_size":1,"output_buffer_timeout":-9}'
    assert "timeout" in refused(ORIGINAL, body)[1]
    assert "size" in refused(REDESIGNED, body)[1]


@BOTH
def test_minus_one_switches_off(policy: Policy) -> None:
    settled = asked(policy, heartbeat_interval=-1, output_buffer_timeout=-1)
    assert (settled.heartbeat_interval, settled.output_buffer_timeout) == (0, 0)
    unbuffered = asked(policy, output_buffer_size=-1)
    assert unbuffered.output_buffer_size == 1
    # Without a buffer the original server has nothing to wait with.
    assert unbuffered.output_buffer_timeout == (50 if policy.redesigned else 0)


@BOTH
def test_a_second_document_leaves_what_it_does_not_name(policy: Policy) -> None:
    first = asked(policy, heartbeat_interval=2000, msg_timeout=5000, output_buffer_size=4096)
    second = settle(b"{}", policy, first)
    assert (second.heartbeat_interval, second.msg_timeout) == (2000, 5000)
    assert second.output_buffer_size == 4096


def test_names_fall_back_to_those_of_old_clients_on_the_redesigned_server_only() -> None:
    old = {"short_id": "s", "long_id": "l"}
    assert (asked(REDESIGNED, **old).client_id, asked(REDESIGNED, **old).hostname) == ("s", "l")
    assert (asked(ORIGINAL, **old).client_id, asked(ORIGINAL, **old).hostname) == ("", "")
    assert unidentified(ORIGINAL, "10.0.0.1").client_id == "10.0.0.1"


def test_tags_are_measured_in_bytes_and_echoed() -> None:
    assert refused(REDESIGNED, json.dumps({"desired_tag": "x" * 101}).encode()) == (
        "E_BAD_BODY",
        "IDENTIFY invalid tag len 101, exceed limit 100",
    )
    assert refused(REDESIGNED, json.dumps({"desired_tag": "é" * 51}).encode())[0] == "E_BAD_BODY"
    assert reply(REDESIGNED, desired_tag="red").endswith(b',"desired_tag":"red"}')
    assert b"desired_tag" not in reply(ORIGINAL, desired_tag="red")


def test_extend_support_stays_once_it_was_said() -> None:
    first = asked(REDESIGNED, extend_support=True, ext_filter={"type": 1})
    assert first.ext_filter == {"type": 1}
    assert settle(b"{}", REDESIGNED, first).extend_support


@pytest.mark.parametrize(
    "rules",
    [
        {"type": "1"},
        {"type": 1.0},
        {"inverse": 1},
        {"filter_ext_key": 1},
        {"filter_data_list": {}},
        {"filter_data_list": [1]},
        {"filter_data_list": [{"filter_data": 1}]},
    ],
)
def test_filters_have_one_type_too(rules: dict[str, object]) -> None:
    body = json.dumps({"ext_filter": rules}).encode()
    assert refused(REDESIGNED, body) == ("E_BAD_BODY", "IDENTIFY failed to decode JSON body")
    assert settle(body, ORIGINAL, unidentified(ORIGINAL, "c")).ext_filter is None


def test_rules_are_decoded_as_the_rest_is() -> None:
    rules = {"Type": 4, "filter_data_list": [{"Filter_Ext_Key": "k", "x": 1}, None]}
    settled = asked(REDESIGNED, ext_filter=rules)
    assert settled.ext_filter == {
        "type": 4,
        "filter_data_list": [{"filter_ext_key": "k", "x": 1}, {}],
    }
    assert asked(REDESIGNED, ext_filter={"filter_data_list": None}).ext_filter == {}


def test_half_a_surrogate_pair_is_no_character() -> None:
    assert reply(REDESIGNED, desired_tag="\ud800").endswith(b',"desired_tag":"?"}')


@BOTH
def test_both_compressions_are_refused_together(policy: Policy) -> None:
    body = b'{"feature_negotiation":true,"snappy":true,"deflate":true}'
    text = "cannot enable both deflate and snappy compression"
    assert refused(policy, body) == ("E_IDENTIFY_FAILED", text)


@BOTH
def test_what_the_server_does_not_offer_is_not_granted(policy: Policy) -> None:
    bare = Policy(dialect=policy.dialect, version=policy.version, snappy=False)
    wanted = b'{"feature_negotiation":true,"snappy":true,"deflate":true,"tls_v1":true}'
    settled = settle(wanted, bare, unidentified(bare, "10.0.0.1"))
    assert (settled.snappy, settled.deflate, settled.tls) == (False, True, False)
    with_tls = Policy(dialect=policy.dialect, version=policy.version, tls=True)
    assert settle(b'{"feature_negotiation":true,"tls_v1":true}', with_tls, settled).tls


@pytest.mark.parametrize(
    ("policy", "document", "level"),
    [
        (ORIGINAL, {}, 6),
        (ORIGINAL, {"deflate": True, "deflate_level": 3}, 3),
        (ORIGINAL, {"deflate": True, "deflate_level": 9}, 6),
        (ORIGINAL, {"deflate": True, "deflate_level": -1}, 6),
        (REDESIGNED, {"deflate_level": 3}, 0),
        (REDESIGNED, {"deflate": True}, 0),
        (REDESIGNED, {"deflate": True, "deflate_level": 3}, 3),
        (REDESIGNED, {"deflate": True, "deflate_level": 9}, 6),
    ],
)
def test_the_deflate_level_has_a_rule_per_dialect(
    policy: Policy, document: dict[str, object], level: int
) -> None:
    assert json.loads(reply(policy, **document))["deflate_level"] == level
