"""IDENTIFY: what is asked for, and what a server grants."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.errors import ProtocolError
from nsqsmart.names import Dialect
from nsqsmart.wire.identify import Grant, Offer, decode_grant
from tests.helpers import ROOT

VECTORS = json.loads((ROOT / "tests" / "vectors" / "wire.json").read_text())["grants"]

ALWAYS = {
    "client_id": "me",
    "hostname": "here",
    "user_agent": "nsqsmart/0",
    "feature_negotiation": True,
    "tls_v1": False,
    "snappy": False,
    "deflate": False,
}
ME = {"client_id": "me", "hostname": "here", "user_agent": "nsqsmart/0"}


def document(**options: object) -> dict[str, object]:
    """The JSON that an offer with these options becomes, beyond what it always says."""
    written = json.loads(Offer(**ME, **options).encode())
    return {key: value for key, value in written.items() if ALWAYS.get(key, ...) != value}


def test_an_offer_that_asks_for_nothing() -> None:
    assert json.loads(Offer(**ME).encode()) == ALWAYS


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ({"heartbeat_interval": 30.0}, {"heartbeat_interval": 30000}),
        ({"heartbeat_interval": -1}, {"heartbeat_interval": -1}),
        ({"heartbeat_interval": 0}, {"heartbeat_interval": 0}),
        ({"msg_timeout": 1.5}, {"msg_timeout": 1500}),
        ({"output_buffer_timeout": 0.025}, {"output_buffer_timeout": 25}),
        ({"output_buffer_timeout": 0.0259}, {"output_buffer_timeout": 26}),
        ({"output_buffer_timeout": -1.0}, {"output_buffer_timeout": -1}),
        ({"output_buffer_timeout": -0.5}, {"output_buffer_timeout": -1}),
        ({"output_buffer_size": 16384}, {"output_buffer_size": 16384}),
        ({"output_buffer_size": -1}, {"output_buffer_size": -1}),
        ({"output_buffer_size": 0}, {"output_buffer_size": 0}),
        ({"sample_rate": 50}, {"sample_rate": 50}),
        ({"sample_rate": 0}, {}),
        ({"tls": True}, {"tls_v1": True}),
        ({"snappy": True}, {"snappy": True}),
        ({"deflate": True}, {"deflate": True, "deflate_level": 6}),
        ({"deflate": True, "deflate_level": 1}, {"deflate": True, "deflate_level": 1}),
        ({"deflate_level": 1}, {}),
        ({"extend_support": True}, {"extend_support": True}),
        ({"desired_tag": "blue"}, {"desired_tag": "blue"}),
        ({"ext_filter": {"type": 1}}, {"ext_filter": {"type": 1}}),
    ],
)
def test_an_option_is_written_when_asked_for(
    options: dict[str, object], written: dict[str, object]
) -> None:
    assert document(**options) == written


@given(st.floats(0, 100_000))
def test_times_are_whole_milliseconds(seconds: float) -> None:
    written = document(heartbeat_interval=seconds, msg_timeout=seconds)
    for value in written.values():
        assert type(value) is int
        assert abs(value - seconds * 1000) <= 0.5


def test_an_offer_is_compact_ascii() -> None:
    encoded = Offer(client_id="größer", hostname="h", user_agent="u", msg_timeout=60).encode()
    assert encoded.isascii()
    assert b" " not in encoded
    assert json.loads(encoded)["client_id"] == "größer"


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["dialect"])
def test_vectors(vector: dict) -> None:
    grant = decode_grant(vector["json"].encode())
    assert grant == Grant(version=vector["version"])
    assert grant.dialect == Dialect(vector["dialect"])


def test_an_ok_grants_nothing() -> None:
    grant = decode_grant(b"OK")
    assert grant == Grant()
    assert not any((grant.tls, grant.snappy, grant.deflate, grant.auth_required))
    assert (grant.max_rdy_count, grant.msg_timeout, grant.max_msg_timeout) == (2500, 60, 900)
    assert grant.dialect is Dialect.ORIGINAL


def test_offers_and_grants_do_not_change() -> None:
    for value, name in ((Grant(), "tls"), (Offer(**ME), "snappy")):
        with pytest.raises(AttributeError):
            setattr(value, name, True)


def test_an_empty_object_grants_the_same() -> None:
    assert decode_grant(b"{}") == Grant()


def test_every_field_is_read() -> None:
    answer = {
        "version": "0.3.7-HA.1.9.9",
        "max_rdy_count": 7,
        "max_msg_timeout": 1500,
        "msg_timeout": 250,
        "tls_v1": True,
        "snappy": True,
        "deflate": True,
        "auth_required": True,
    }
    assert decode_grant(json.dumps(answer).encode()) == Grant(
        version="0.3.7-HA.1.9.9",
        max_rdy_count=7,
        max_msg_timeout=1.5,
        msg_timeout=0.25,
        tls=True,
        snappy=True,
        deflate=True,
        auth_required=True,
    )


@pytest.mark.parametrize("field", ["tls_v1", "snappy", "deflate", "auth_required"])
def test_a_switch_is_read_from_its_own_key(field: str) -> None:
    grant = decode_grant(json.dumps({field: True}).encode())
    name = "tls" if field == "tls_v1" else field
    switches = {"tls", "snappy", "deflate", "auth_required"}
    assert {each for each in switches if getattr(grant, each)} == {name}


@pytest.mark.parametrize(
    ("version", "dialect"),
    [
        ("1.3.0", Dialect.ORIGINAL),
        ("", Dialect.ORIGINAL),
        ("1.3.0-HAPPY", Dialect.ORIGINAL),
        ("HA.1", Dialect.ORIGINAL),
        ("0.3.7-HA.1.13.0", Dialect.REDESIGNED),
        ("v0.3.5-HA.1.5.4.1-dirty", Dialect.REDESIGNED),
    ],
)
def test_the_dialect_is_told_from_the_version(version: str, dialect: Dialect) -> None:
    assert Grant(version=version).dialect is dialect


@pytest.mark.parametrize(
    "data",
    [b"", b"ok", b"OK ", b"{", b"\xff\xfe", b"{'a':1}", b"[" * 100_000, b'{"version":"\xff"}'],
)
def test_what_is_no_answer(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="neither OK nor JSON"):
        decode_grant(data)


@pytest.mark.parametrize("data", [b"null", b"[]", b"1", b'"OK"', b"true"])
def test_what_is_no_object(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="is no JSON object"):
        decode_grant(data)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("version", [None, 1, ["1.3.0"], True]),
        ("max_rdy_count", [None, "2500", 2500.0, True, -1, 2**63, 10**400]),
        ("max_msg_timeout", [None, "1", 900000.0, False, -1, 2**63, 10**400]),
        ("msg_timeout", [None, {}, 60000.0, True, -1, 2**63, 10**400]),
        ("tls_v1", [None, 0, 1, "true"]),
        ("snappy", [None, 1]),
        ("deflate", [None, 1]),
        ("auth_required", [None, 1]),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(field: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(ProtocolError, match=f"no usable {field}: (str|int|bool) expected"):
            decode_grant(json.dumps({field: value}).encode())


@pytest.mark.parametrize("value", [0, 2**63 - 1])
def test_a_count_may_be_anything_a_server_can_hold(value: int) -> None:
    grant = decode_grant(json.dumps({"max_rdy_count": value, "msg_timeout": value}).encode())
    assert (grant.max_rdy_count, grant.msg_timeout) == (value, value / 1000)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(
    st.dictionaries(
        st.sampled_from(["version", "max_rdy_count", "msg_timeout", "tls_v1", "other"]), json_values
    )
    | st.binary(max_size=30)
)
def test_any_answer_is_a_grant_or_an_error_of_ours(answer: dict | bytes) -> None:
    data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    try:
        grant = decode_grant(data)
    except ProtocolError:
        return
    assert type(grant.max_rdy_count) is int
    assert type(grant.version) is str
    assert grant.msg_timeout >= 0
