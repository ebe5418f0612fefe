"""A receipt says where, and no more than the server told."""

from __future__ import annotations

from nsqsmart.client.shared.receipt import Receipt


def test_an_untraced_receipt_knows_no_position():
    receipt = Receipt("t", 3, "a:4150")
    assert receipt.attempts == 1
    assert (receipt.internal_id, receipt.trace_id, receipt.offset, receipt.size) == (None,) * 4
