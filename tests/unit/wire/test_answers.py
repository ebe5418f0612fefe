"""Error frames: the code is the first word, whatever stands behind it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.errors import ServerError
from nsqsmart.names import printable
from nsqsmart.wire import answers
from nsqsmart.wire.answers import decode_error, refused_id
from tests.encoding import encode_error
from tests.helpers import ROOT

VECTORS = json.loads((ROOT / "tests" / "vectors" / "wire.json").read_text())["errors"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["code"])
def test_vectors(vector: dict) -> None:
    wire = bytes.fromhex(vector["hex"])
    assert wire[:8] == (len(wire) - 4).to_bytes(4) + b"\0\0\0\x01"
    error = decode_error(wire[8:])
    assert (error.code, error.detail) == (vector["code"], vector["detail"])
    assert encode_error(vector["code"], vector["detail"], bare=vector["bare"]) == wire[8:]


@pytest.mark.parametrize(
    ("data", "code", "detail"),
    [
        (b"", "", ""),
        (b"E_X", "E_X", ""),
        (b"E_X  two", "E_X", " two"),
        (b" E_X", "", "E_X"),
        (b"too much client connections", "too", "much client connections"),
        (
            b"E_FIN_FAILED FIN \x00\xff\n\x80 failed",
            "E_FIN_FAILED",
            "FIN \\x00\\xff\\n\\x80 failed",
        ),
        ("E_X é".encode(), "E_X", "é"),
        (b"E_\x1b[31m a\r\nb", "E_\\x1b[31m", "a\\r\\nb"),
        ("E_X \u202eb\u2028".encode(), "E_X", "\\u202eb\\u2028"),
    ],
)
def test_the_code_ends_at_the_first_space(data: bytes, code: str, detail: str) -> None:
    error = decode_error(data)
    assert isinstance(error, ServerError)
    assert (error.code, error.detail) == (code, detail)


def test_a_secret_is_not_repeated_nor_half_of_it() -> None:
    error = decode_error(b"E_AUTH_FAILED " + b"x" * 490 + b"sesame and sesame", b"sesame")
    assert error.detail == "x" * 490 + "*** and "
    assert decode_error(b"E_X sesame", b"").detail == "sesame"


@pytest.mark.parametrize("letter", ["x", "é", "€", "😀"])
@pytest.mark.parametrize("length", [507, 508, 509, 100_000])
def test_a_long_text_is_cut_between_letters(letter: str, length: int) -> None:
    error = decode_error(f"E_X {letter * length}".encode())
    assert error.code == "E_X"
    assert error.detail == letter * min(length, 508)


@given(st.binary(max_size=3000))
def test_any_data_is_an_error(data: bytes) -> None:
    error = decode_error(data)
    assert " " not in error.code
    assert str(error).isprintable()
    assert len(error.code) + len(error.detail) <= 512


@given(st.from_regex(r"E_[A-Z_]{1,20}", fullmatch=True), st.text(max_size=400))
def test_round_trip(code: str, detail: str) -> None:
    error = decode_error(encode_error(code, detail))
    assert (error.code, error.detail) == (code, printable(detail)[: 511 - len(code)])


def test_without_detail_the_space_stays_unless_bare() -> None:
    assert encode_error("E_X") == b"E_X "
    assert encode_error("E_X", bare=True) == b"E_X"


def test_the_codes_as_the_servers_spell_them() -> None:
    assert answers.MOVED == {
        "E_FAILED_ON_NOT_LEADER",
        "E_FAILED_ON_NOT_WRITABLE",
        "E_TOPIC_NOT_EXIST",
    }
    assert answers.PUBLISH_FAILED == {"E_PUB_FAILED", "E_MPUB_FAILED", "E_DPUB_FAILED"}
    assert answers.ACK_FAILED == {"E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"}
    assert answers.BAD_PARTITION == "E_BAD_PARTITION"
    assert answers.TOO_MUCH_WAITING == "E_PUB_TOO_MUCH_WAITING"
    assert answers.SUB_EXTEND_NEED == "E_SUB_EXTEND_NEED"
    assert answers.SUB_EXTEND_FORBIDDEN == "E_SUB_EXTEND_FORBIDDON"
    assert answers.SUB_ORDER_IS_MUST == "E_SUB_ORDER_IS_MUST"
    assert {f"E_AUTH_{end}" for end in ("DISABLED", "FIRST", "FAILED", "ERROR")} | {
        "E_UNAUTHORIZED"
    } == answers.UNAUTHORIZED
    assert answers.BAD_INPUT == {
        "E_BAD_MESSAGE",
        "E_BAD_TOPIC",
        "E_BAD_BODY",
        "E_BAD_CHANNEL",
        "E_BAD_EXT",
        "E_EXT_NOT_SUPPORT",
        "E_INVALID_JSON_HEADER",
        "INVALID_TRACE_ID",
    }


def test_no_code_belongs_to_two_families() -> None:
    families = [
        answers.MOVED,
        answers.PUBLISH_FAILED,
        answers.UNAUTHORIZED,
        answers.BAD_INPUT,
        answers.ACK_FAILED,
    ]
    assert len(frozenset().union(*families)) == sum(map(len, families))


IN_BYTES = " ".join(["0", "255", "10"] + ["7"] * 13)


@pytest.mark.parametrize(
    ("detail", "message_id"),
    [
        ("FIN 0123456789abcdef failed ID not in flight", b"0123456789abcdef"),
        ("REQ 0123456789abcdef failed ID not in flight", b"0123456789abcdef"),
        (f"TOUCH [{IN_BYTES}] failed ErrType:7", b"\x00\xff\x0a" + b"\x07" * 13),
        (f"FIN [{IN_BYTES} 7] failed", None),
        (f"FIN [{IN_BYTES.replace('255', '256')}] failed", None),
        ("FIN 0123456789abcde failed", None),
        ("", None),
    ],
)
def test_which_answer_was_refused(detail, message_id):
    assert refused_id(ServerError("E_FIN_FAILED", detail)) == message_id


@given(st.binary(min_size=16, max_size=16))
def test_any_id_is_read_as_a_redesigned_nsqd_writes_it(message_id):
    numbers = " ".join(map(str, message_id))
    assert refused_id(ServerError("E_FIN_FAILED", f"FIN [{numbers}] failed x")) == message_id
