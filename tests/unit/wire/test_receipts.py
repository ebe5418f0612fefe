"""Receipts: a plain OK, or where a traced message was stored."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.errors import ProtocolError
from nsqsmart.wire.receipts import TracedReceipt, decode_receipt, encode_receipt
from tests.helpers import ROOT

VECTORS = json.loads((ROOT / "tests" / "vectors" / "wire.json").read_text())["receipts"]

counts = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["receipt"]))
def test_vectors(vector: dict) -> None:
    data = bytes.fromhex(vector["hex"])[8:]
    receipt = vector["receipt"] and TracedReceipt(*vector["receipt"])
    assert decode_receipt(data) == receipt
    assert encode_receipt(receipt) == data


def test_the_fields_by_name() -> None:
    receipt = decode_receipt(b"OK" + b"".join(n.to_bytes(8) for n in (1, 2, 3)) + (4).to_bytes(4))
    assert receipt == TracedReceipt(internal_id=1, trace_id=2, offset=3, size=4)


@given(st.none() | st.builds(TracedReceipt, counts, counts, counts, st.integers(0, 2**32 - 1)))
def test_round_trip(receipt: TracedReceipt | None) -> None:
    assert decode_receipt(encode_receipt(receipt)) == receipt


@pytest.mark.parametrize(
    "data",
    [b"", b"O", b"ok", b"OK ", b"CLOSE_WAIT", b"_heartbeat_", b"OK" + bytes(27)]
    + [b"OK" + bytes(29), b"KO" + bytes(28), bytes(30), b'{"ok":true}'],
)
def test_what_is_no_receipt(data: bytes) -> None:
    with pytest.raises(ProtocolError, match=f"answer of {len(data)} bytes to a publish is no OK"):
        decode_receipt(data)
