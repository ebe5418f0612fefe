"""The receipt of a traced message is that of this very message, or there is none."""

from __future__ import annotations

import pytest

import nsqsmart
from nsqsmart.errors import Outcome, PublishError
from nsqsmart.wire.frames import OK, RESPONSE, encode_frame
from nsqsmart.wire.receipts import TracedReceipt, encode_receipt
from tests.peers import Peer, Script, Talk, lookup_of

MINE = TracedReceipt(11, 7, 100, 50)


def storing(answer: bytes) -> Script:
    """An nsqd that says *answer* to a traced message."""

    def script(talk: Talk) -> None:
        talk.greet()
        assert talk.line() == b"PUB_TRACE t 0"
        talk.body()
        talk.send(encode_frame(RESPONSE, answer))
        talk.stall()

    return script


def publish(answer: bytes) -> nsqsmart.Receipt:
    with Peer(storing(answer)) as nsqd, Peer(lookup_of({0: nsqd.address})) as lookup:
        url = "nsq+lookupd://{}:{}".format(*lookup.address)
        with nsqsmart.Producer(url, publish_attempts=1) as producer:
            return producer.publish("t", b"x", trace_id=7)


def test_a_receipt_says_where_the_message_is():
    receipt = publish(encode_receipt(MINE))
    assert (receipt.internal_id, receipt.trace_id) == (11, 7)
    assert (receipt.offset, receipt.size) == (100, 50)


@pytest.mark.parametrize(
    "answer", [encode_receipt(MINE._replace(trace_id=8)), OK], ids=["another's", "none"]
)
def test_one_that_is_not_this_messages_is_no_success(answer):
    with pytest.raises(PublishError, match="not that of this message") as caught:
        publish(answer)
    assert caught.value.outcome is Outcome.UNCERTAIN
