"""Exceptions: what is caught by what, and what survives a trip to another process."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from nsqsmart import errors
from nsqsmart.client.shared import errors as publish_errors
from nsqsmart.errors import Attempt, NodeResult, NsqError, Outcome, PublishError, ServerError

CLASSES = [
    each
    for module in (errors, publish_errors)
    for _, each in inspect.getmembers(module, inspect.isclass)
    if issubclass(each, Exception) and each.__module__ == module.__name__
]
PUBLISH_ERRORS = [each for each in CLASSES if issubclass(each, PublishError)]


@pytest.mark.parametrize(
    ("error", "bases"),
    [
        ("NsqError", {"Exception"}),
        ("ConfigError", {"NsqError", "ValueError"}),
        ("ClientClosed", {"NsqError", "RuntimeError"}),
        ("UsedAfterFork", {"ClientClosed"}),
        ("AlreadyResponded", {"NsqError", "RuntimeError"}),
        ("AdminError", {"NsqError"}),
        ("TransportError", {"NsqError"}),
        ("ConnectError", {"TransportError"}),
        ("TlsRequired", {"ConnectError"}),
        ("ConnectionLost", {"TransportError"}),
        ("ResponseTimeout", {"TransportError", "TimeoutError"}),
        ("PoolTimeout", {"TransportError", "TimeoutError"}),
        ("TurnTimeout", {"TransportError", "TimeoutError"}),
        ("DiscoveryError", {"TransportError"}),
        ("ProtocolError", {"TransportError"}),
        ("CompressionError", {"ProtocolError"}),
        ("ServerError", {"TransportError"}),
        ("SubscribeError", {"NsqError"}),
        ("PublishError", {"NsqError"}),
        ("MessageRejected", {"PublishError"}),
        ("NotAuthorized", {"SubscribeError"}),
        ("CannotBe", {"NsqError"}),
        ("TopicNotExist", {"CannotBe"}),
        ("TopicHasNoChannel", {"PublishError"}),
        ("PartitionUnavailable", {"PublishError"}),
        ("PartitionCountChanged", {"PublishError"}),
        ("OrderingNotSupported", {"CannotBe"}),
        ("NotSupported", {"CannotBe"}),
        ("PublishTimeout", {"PublishError", "TimeoutError"}),
        ("PublishFailed", {"PublishError"}),
    ],
)
def test_what_an_error_is(error: str, bases: set[str]) -> None:
    assert {base.__name__ for base in getattr(errors, error).__bases__} == bases


def test_a_retry_loop_for_sockets_catches_timeouts_only() -> None:
    caught = {each.__name__ for each in CLASSES if issubclass(each, OSError)}
    assert caught == {"ResponseTimeout", "PoolTimeout", "TurnTimeout", "PublishTimeout"}


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_is_ours_and_documented(error: type[Exception]) -> None:
    assert issubclass(error, NsqError)
    assert (error.__doc__ or "").strip()


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (errors.TransportError("x"), False),
        (errors.ConnectError("x"), False),
        (errors.TlsRequired("x"), False),
        (errors.ConnectionLost("x"), False),
        (errors.ConnectionLost("x", sent=True), True),
        (errors.ResponseTimeout("x"), True),
        (errors.PoolTimeout("x"), False),
        (errors.DiscoveryError("x"), False),
        (errors.ProtocolError("x"), True),
        (errors.CompressionError("x"), True),
        (ServerError("E_X"), True),
    ],
)
def test_whether_bytes_may_have_left(error: errors.TransportError, sent: bool) -> None:
    assert error.sent is sent


def test_the_worst_outcome_is_the_most_severe() -> None:
    assert [outcome.severity for outcome in Outcome] == [0, 1, 2]
    assert max(Outcome, key=lambda outcome: outcome.severity) is Outcome.UNCERTAIN
    assert min(Outcome, key=lambda outcome: outcome.severity) is Outcome.NOT_SENT


def test_an_outcome_is_its_name() -> None:
    assert [str(outcome) for outcome in Outcome] == ["not_sent", "rejected", "uncertain"]
    assert Outcome("rejected") is Outcome.REJECTED


@pytest.mark.parametrize(
    ("code", "detail", "text"),
    [
        ("E_BAD_TOPIC", 'PUB topic name "t$" is not valid', None),
        ("E_TOPIC_NOT_EXIST", "", "E_TOPIC_NOT_EXIST"),
        ("E_INVALID", "invalid command ", "E_INVALID invalid command"),
    ],
)
def test_a_server_error_reads_as_the_server_wrote_it(
    code: str, detail: str, text: str | None
) -> None:
    error = ServerError(code, detail)
    assert str(error) == (text or f"{code} {detail}")
    assert (error.code, error.detail) == (code, detail)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is ServerError
        assert (twin.code, twin.detail, str(twin)) == (code, detail, str(error))


def test_a_server_error_needs_no_detail() -> None:
    assert ServerError("E_X").detail == ""


def test_a_subscribe_error_carries_the_code() -> None:
    assert errors.SubscribeError("refused").code == ""
    error = pickle.loads(pickle.dumps(errors.SubscribeError("refused", code="E_BAD_TOPIC")))
    assert (str(error), error.code) == ("refused", "E_BAD_TOPIC")


def test_whether_a_connection_may_be_tried_again() -> None:
    assert not errors.ConnectError("refused").permanent
    for kind in (errors.ConnectError, errors.TlsRequired):
        error = pickle.loads(pickle.dumps(kind("no", permanent=True)))
        assert (type(error), str(error), error.permanent) == (kind, "no", True)


def test_a_lost_connection_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(errors.ConnectionLost("gone", sent=True)))
    assert (str(error), error.sent) == ("gone", True)


def test_a_publish_error_is_harmless_until_told_otherwise() -> None:
    error = PublishError("no")
    assert (error.outcome, error.answered, error.code) == (Outcome.NOT_SENT, True, "")
    assert (error.attempts, error.hint, error.retryable) == ((), "", False)
    assert str(error) == "no"


@pytest.mark.parametrize("error", PUBLISH_ERRORS)
def test_a_publish_error_keeps_all_it_was_told(error: type[PublishError]) -> None:
    attempts = (Attempt("127.0.0.1:4150", 3, "E_FAILED_ON_NOT_LEADER", 0.25),)
    first = error(
        "topic t: no leader",
        outcome=Outcome.UNCERTAIN,
        answered=False,
        code="E_FAILED_ON_NOT_LEADER",
        attempts=attempts,
        hint="try later",
    )
    for each in (first, pickle.loads(pickle.dumps(first)), copy.copy(first)):
        assert type(each) is error
        assert str(each) == "topic t: no leader; try later"
        assert (each.outcome, each.answered) == (Outcome.UNCERTAIN, False)
        assert (each.code, each.attempts) == ("E_FAILED_ON_NOT_LEADER", attempts)
        assert each.hint == "try later"


def test_which_publish_may_succeed_later() -> None:
    assert {each.__name__ for each in PUBLISH_ERRORS if each.retryable} == {
        "SpoolError",
        "TopicNotExist",
        "TopicHasNoChannel",
        "PartitionUnavailable",
        "PartitionCountChanged",
        "PublishTimeout",
        "PublishFailed",
    }


def test_a_refused_login_is_caught_by_publishers_and_subscribers() -> None:
    for family in (PublishError, errors.SubscribeError):
        with pytest.raises(family) as caught:
            raise publish_errors.NotAuthorized("no", code="E_UNAUTHORIZED")
        assert caught.value.code == "E_UNAUTHORIZED"


@pytest.mark.parametrize(
    "name", ["NotAuthorized", "TopicNotExist", "OrderingNotSupported", "NotSupported"]
)
def test_what_may_end_other_calls_too_is_a_publish_error_of_publishes_alone(name: str) -> None:
    public, published = getattr(errors, name), getattr(publish_errors, name)
    assert not issubclass(public, PublishError)
    assert issubclass(published, public)
    assert issubclass(published, PublishError)
    assert published.__name__ == name


def test_what_cannot_be_says_what_to_do() -> None:
    first = errors.TopicNotExist("no topic", hint="make it")
    for each in (first, copy.copy(first)):
        assert (str(each), each.hint, each.retryable) == ("no topic; make it", "make it", True)
    assert errors.NotSupported("no").hint == ""


def test_an_admin_error_says_where_it_was_done_and_where_not() -> None:
    good = NodeResult("127.0.0.1:4150", 0, done=True, detail="")
    bad = NodeResult("127.0.0.1:4152", 1, done=False, detail="refused")
    first = errors.AdminError("cannot", results=(good, bad))
    for each in (first, pickle.loads(pickle.dumps(first)), copy.copy(first)):
        assert (str(each), each.results) == ("cannot", (good, bad))
        assert (each.done, each.failed) == ((good,), (bad,))
    assert errors.AdminError("cannot").results == ()


def test_an_attempt_reads_by_name() -> None:
    attempt = Attempt(nsqd=None, partition=None, code="pool_timeout", elapsed=1.5)
    assert attempt == (None, None, "pool_timeout", 1.5)
