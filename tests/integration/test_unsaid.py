"""Bodies are the application's: no log record and no error says what is in one."""

from __future__ import annotations

import logging
import traceback

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster
from nsqsmart.errors import PublishError
from nsqsmart.wire.frames import ERROR, encode_frame
from tests.helpers import eventually
from tests.integration.consuming import publish
from tests.peers import Peer, Talk

BODY = b"iban DE02 1203 0000 0000 2020 51"
TEXT = BODY.decode()


def test_a_handler_that_fails_is_logged_without_the_body(caplog):
    caplog.set_level(logging.DEBUG, "nsqsmart")
    kept = []

    def fail(message: nsqsmart.Message) -> None:
        raise ValueError("no")

    options = {"max_attempts": 1, "default_requeue_delay": 0, "backoff_multiplier": 0.01}
    with Cluster() as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        publish(cluster, BODY)
        options |= {"address": cluster.url, "on_giving_up": kept.append}
        with nsqsmart.Consumer("t", "c", fail, **options):
            eventually(lambda: kept and "is given up" in caplog.text)
    assert kept[0].body == BODY
    assert "handler failed on" in caplog.text
    assert TEXT not in caplog.text
    # Programs that keep records apart from their text have them in the arguments too.
    assert TEXT not in repr([record.args for record in caplog.records])


@pytest.mark.parametrize("code", [b"E_BAD_MESSAGE too large", b"E_FAILED_ON_NOT_LEADER", b""])
@pytest.mark.parametrize("way", ["publish", "publish_many", "publish_async"])
def test_a_publish_that_fails_says_nothing_of_the_body(way, code, caplog):
    caplog.set_level(logging.DEBUG, "nsqsmart")

    def script(talk: Talk) -> None:
        talk.greet()
        talk.line()
        talk.body()
        if code:
            talk.send(encode_frame(ERROR, code))
            talk.stall()

    def fail(producer: nsqsmart.Producer) -> object:
        given = [BODY] if way == "publish_many" else BODY
        found = getattr(producer, way)("t", given)
        return found.result(5)

    options = {"publish_attempts": 1, "publish_timeout": 5}
    with (
        Peer(script) as peer,
        nsqsmart.Producer(peer.url, **options) as producer,
        pytest.raises(PublishError) as caught,
    ):
        fail(producer)
    said = "".join(traceback.format_exception(caught.value))
    for text in (said, repr(vars(caught.value)), caplog.text):
        assert TEXT not in text
    assert "publish to 't'" in said
