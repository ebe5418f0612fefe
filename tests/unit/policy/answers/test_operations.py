"""What answers to operators mean, one by one and together."""

from __future__ import annotations

import json

import pytest

from nsqsmart.errors import NodeResult
from nsqsmart.policy.answers.lookup import TopicMeta
from nsqsmart.policy.answers.operations import (
    Answer,
    Operation,
    TopicSettings,
    Verdict,
    describe_topic,
    failure,
    is_done,
    judge,
    relevant,
)

PAUSE = Operation("pause channel 'c' of topic 't'", "/channel/pause", (("topic", "t"),))
DELETE = PAUSE._replace(deletes=True)


def say(text: str) -> bytes:
    return json.dumps({"message": text}).encode()


@pytest.mark.parametrize(
    ("status", "text", "verdict"),
    [
        (400, "E_FAILED_ON_NOT_LEADER", Verdict.AGAIN),
        (400, "E_FAILED_ON_NOT_WRITABLE", Verdict.AGAIN),
        (404, "E_TOPIC_NOT_EXIST", Verdict.AGAIN),
        (500, "Not nsqlookup leader", Verdict.AGAIN),
        (500, "INTERNAL_ERROR", Verdict.AGAIN),
        (400, "The topic is waiting node to join isr", Verdict.AGAIN),
        (404, "TOPIC_NOT_FOUND", Verdict.NO_TOPIC),
        (500, "Key not found", Verdict.NO_TOPIC),
        (404, "CHANNEL_NOT_FOUND", Verdict.NO_CHANNEL),
        (400, "channel c not registered", Verdict.NO_CHANNEL),
        (400, "channel c already registered", Verdict.DONE),
        (500, "commit log end of file", Verdict.DONE),
        (400, "already exist", Verdict.EXISTS),
        (404, "NOT_FOUND", Verdict.FAILED),
        (400, "ErrType:9 ErrCode:1 : No node is available for topic", Verdict.FAILED),
        (
            403,
            "channel c not registered. channel should be initialized before use.",
            Verdict.FAILED,
        ),
    ],
)
def test_what_an_answer_means(status, text, verdict):
    assert judge(status, say(text)) == (verdict, f"{status} {text}")


@pytest.mark.parametrize("body", [b"", b"{}", b'{"status_code":200,"data":null}'])
def test_a_success_says_nothing(body):
    assert judge(200, body) == (Verdict.DONE, "")


def test_whoever_answers_anything_else_is_no_nsqd():
    assert judge(200, b"<html>Welcome</html>") == (Verdict.FAILED, "the answer is not JSON")
    assert judge(502, b"<html>\x1b[2J") == (Verdict.FAILED, "502 <html>\\x1b[2J")
    assert judge(503, b"") == (Verdict.FAILED, "503")


def test_http_without_tls_may_be_refused():
    verdict, text = judge(403, b'{"message": "TLS_REQUIRED", "https_port": 4152}')
    assert verdict is Verdict.FAILED
    assert text == "TLS_REQUIRED: an Admin speaks HTTP without TLS only"


def test_a_partition_is_named_where_there_are_some():
    assert PAUSE.at(None) is PAUSE
    assert PAUSE.at(3).query == (("topic", "t"), ("partition", "3"))


# --------------------------------------------------------------------------- original clusters


def answer(node: str, verdict: Verdict, *, expected: bool = False) -> Answer:
    return Answer(node, verdict, expected=expected)


@pytest.mark.parametrize(
    ("answers", "kept"),
    [
        ([answer("a", Verdict.NO_TOPIC, expected=True)], ""),
        ([answer("a", Verdict.DONE), answer("b", Verdict.NO_TOPIC)], "a"),
        ([answer("a", Verdict.DONE), answer("b", Verdict.NO_CHANNEL)], "a"),
        ([answer("a", Verdict.NO_CHANNEL), answer("b", Verdict.NO_CHANNEL)], "ab"),
        ([answer("a", Verdict.FAILED), answer("b", Verdict.NO_CHANNEL)], "ab"),
        ([answer("a", Verdict.DONE), answer("b", Verdict.FAILED)], "ab"),
        ([answer("a", Verdict.DONE), answer("b", Verdict.UNREACHABLE)], "a"),
        ([answer("a", Verdict.DONE), answer("b", Verdict.UNREACHABLE, expected=True)], "ab"),
        ([answer("a", Verdict.AGAIN)], "a"),
    ],
)
def test_whose_answer_counts(answers, kept):
    assert "".join(each.node for each in relevant(answers)) == kept


# --------------------------------------------------------------------------------- what it comes to


def test_what_is_to_be_deleted_may_be_gone():
    assert is_done(PAUSE, answer("a", Verdict.DONE))
    assert not is_done(PAUSE, answer("a", Verdict.NO_CHANNEL))
    assert is_done(DELETE, answer("a", Verdict.NO_CHANNEL))
    assert not is_done(DELETE, answer("a", Verdict.UNREACHABLE))


def test_nothing_failed_is_no_error():
    assert failure(PAUSE, []) is None
    assert failure(DELETE, [answer("a", Verdict.DONE), answer("b", Verdict.NO_CHANNEL)]) is None


def test_an_error_names_every_server():
    error = failure(
        PAUSE,
        [
            Answer("a:4150", Verdict.DONE, partition=0),
            Answer("b:4150", Verdict.UNREACHABLE, "refused", partition=1),
            Answer("", Verdict.AGAIN, "it has no leader", partition=2),
            Answer("c:4150", Verdict.FAILED),
        ],
    )
    assert error is not None
    assert str(error) == (
        "cannot pause channel 'c' of topic 't' on partition 1 at b:4150 (refused), "
        "partition 2 (it has no leader), c:4150; done on partition 0 at a:4150"
    )
    assert error.done == (NodeResult("a:4150", 0, done=True, detail=""),)
    assert [each.node for each in error.failed] == ["b:4150", "", "c:4150"]


def test_an_error_says_that_nothing_was_done():
    error = failure(PAUSE, [Answer("a:4150", Verdict.NO_CHANNEL, "404 CHANNEL_NOT_FOUND")])
    assert str(error).endswith("on a:4150 (404 CHANNEL_NOT_FOUND); done nowhere")


# ------------------------------------------------------------------------------- making topics

PLAIN = TopicSettings("t", 1, 1, ordered=False, extend_support=False)


@pytest.mark.parametrize(
    ("settings", "beyond", "flags"),
    [
        (PLAIN, [], {}),
        (PLAIN._replace(partitions=2), ["partitions"], {"multipart"}),
        (PLAIN._replace(replicas=3), ["replicas"], {}),
        (PLAIN._replace(partitions=2, ordered=True), ["partitions", "ordered"], {"orderedmulti"}),
        (PLAIN._replace(extend_support=True), ["extend_support"], {"extend"}),
    ],
)
def test_what_a_lookup_is_told(settings, beyond, flags):
    assert settings.beyond_original == beyond
    assert dict(settings.query) == {
        "topic": "t",
        "partition_num": str(settings.partitions),
        "replicator": str(settings.replicas),
        **dict.fromkeys(flags, "true"),
    }


def test_a_topic_that_is_there_may_be_the_one():
    meta = TopicMeta(2, ordered=True, extended=False, channels_by_lookup=True, replicas=3)
    settings = TopicSettings("t", 2, 3, ordered=True, extend_support=False)
    assert settings.is_met_by(meta)
    for other in (
        settings._replace(partitions=3),
        settings._replace(replicas=2),
        settings._replace(ordered=False),
        settings._replace(extend_support=True),
    ):
        assert not other.is_met_by(meta)
    shown = "partitions=2, replicas=3, ordered=True, extend_support=False"
    assert describe_topic(meta) == shown
