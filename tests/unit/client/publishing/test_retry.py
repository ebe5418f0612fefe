"""Which error the caller of publish sees, and what it says of the message."""

from __future__ import annotations

import pytest

from nsqsmart.client.publishing.retry import publish_error
from nsqsmart.client.shared.errors import NoLeader, NotAuthorized, NotSupported, code_of
from nsqsmart.errors import (
    Attempt,
    ClientClosed,
    ConnectError,
    ConnectionLost,
    DiscoveryError,
    MessageRejected,
    NsqError,
    Outcome,
    PartitionUnavailable,
    PoolTimeout,
    PublishFailed,
    PublishTimeout,
    ResponseTimeout,
    ServerError,
    TlsRequired,
    TurnTimeout,
)
from nsqsmart.policy.retry import Retry, judge

DEADLINE = 100.0


def tried(*errors: NsqError) -> Retry:
    retry = Retry(DEADLINE)
    for error in errors:
        verdict = judge(error, keyed=False, retry_unanswered=False)
        retry = retry.after(Attempt("a:4150", None, code_of(error), 0.1), verdict)
    return retry


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ServerError("E_UNAUTHORIZED"), NotAuthorized),
        (ServerError("E_AUTH_FIRST"), NotAuthorized),
        (ServerError("E_EXT_NOT_SUPPORT"), NotSupported),
        (ServerError("E_BAD_MESSAGE", "too big"), MessageRejected),
        (ServerError("INVALID_TRACE_ID"), MessageRejected),
        (ServerError("E_PUB_FAILED"), PublishFailed),
        (NoLeader("partition 1 has no leader"), PartitionUnavailable),
        (ConnectError("refused"), PublishFailed),
        (ConnectionLost("reset", sent=True), PublishFailed),
    ],
)
def test_the_kind_of_failure_chooses_the_class(error, kind):
    found = publish_error("t", tried(error), error, now=1.0)
    assert type(found) is kind
    assert found.code == code_of(error)
    assert str(error) in str(found)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectError("refused"), PublishTimeout),
        (PoolTimeout("busy"), PublishTimeout),
        (ServerError("E_PUB_FAILED"), PublishTimeout),
        # These say more than that the time was up.
        (NoLeader("none"), PartitionUnavailable),
        (ServerError("E_BAD_MESSAGE"), MessageRejected),
    ],
)
def test_past_the_deadline_it_is_a_timeout_unless_the_reason_is_better(error, kind):
    assert type(publish_error("t", tried(error), error, now=DEADLINE)) is kind


def test_the_worst_of_all_attempts_is_the_outcome():
    lost, refused = ConnectionLost("reset", sent=True), ConnectError("refused")
    found = publish_error("t", tried(lost, refused), refused, now=1.0)
    assert found.outcome is Outcome.UNCERTAIN
    assert not found.answered
    assert [attempt.code for attempt in found.attempts] == ["ConnectionLost", "ConnectError"]
    assert "after 2 attempts" in str(found)
    assert "uncertain" in str(found)


def test_what_can_be_done_is_said():
    error = ServerError("E_TOPIC_NOT_EXIST")
    found = publish_error("t", tried(error), error, now=1.0)
    assert "check its name" in found.hint
    assert found.hint in str(found)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectError("refused"), "4150"),
        (TlsRequired("it insists on TLS"), "nsqs://"),
        (ResponseTimeout("silence"), "may be stored"),
        (ConnectionLost("reset", sent=True), "may be stored"),
        (ConnectionLost("reset"), ""),
        (PoolTimeout("busy"), "pool_size"),
        (TurnTimeout("busy"), "keys"),
        (DiscoveryError("silence"), "4161"),
    ],
)
def test_every_failure_of_the_network_has_a_hint(error, said):
    found = publish_error("t", tried(error), error, now=1.0)
    assert said in found.hint
    assert bool(said) is bool(found.hint)


def test_a_client_that_closes_meanwhile_is_a_failure_with_nothing_sent():
    found = publish_error("t", Retry(DEADLINE), ClientClosed("closed"), now=DEADLINE + 1)
    assert type(found) is PublishFailed
    assert found.outcome is Outcome.NOT_SENT
