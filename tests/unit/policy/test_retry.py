"""What follows each failure, row by row, and when to give up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.errors import (
    Attempt,
    CompressionError,
    ConnectError,
    ConnectionLost,
    DiscoveryError,
    Outcome,
    PoolTimeout,
    ProtocolError,
    ResponseTimeout,
    ServerError,
    TlsRequired,
    TransportError,
    TurnTimeout,
)
from nsqsmart.policy.retry import Retry, Verdict, judge

NOT_SENT, REJECTED, UNCERTAIN = Outcome.NOT_SENT, Outcome.REJECTED, Outcome.UNCERTAIN

REFUSED = Verdict(REJECTED, answered=True, retry=False)
CODES = [
    *[
        (code, REFUSED)
        for code in (
            "E_BAD_MESSAGE",
            "E_BAD_TOPIC",
            "E_BAD_BODY",
            "E_BAD_CHANNEL",
            "E_BAD_EXT",
            "E_EXT_NOT_SUPPORT",
            "E_INVALID_JSON_HEADER",
            "INVALID_TRACE_ID",
            "E_AUTH_DISABLED",
            "E_AUTH_FIRST",
            "E_AUTH_FAILED",
            "E_AUTH_ERROR",
            "E_UNAUTHORIZED",
        )
    ],
    ("E_FAILED_ON_NOT_LEADER", Verdict(UNCERTAIN, answered=True, retry=True, moved=True)),
    ("E_FAILED_ON_NOT_WRITABLE", Verdict(UNCERTAIN, answered=True, retry=True, moved=True)),
    ("E_TOPIC_NOT_EXIST", Verdict(REJECTED, answered=True, retry=True, moved=True)),
    ("E_PUB_FAILED", Verdict(UNCERTAIN, answered=True, retry=True)),
    ("E_MPUB_FAILED", Verdict(UNCERTAIN, answered=True, retry=True)),
    ("E_DPUB_FAILED", Verdict(UNCERTAIN, answered=True, retry=True)),
    ("E_PUB_TOO_MUCH_WAITING", Verdict(REJECTED, answered=True, retry=True, elsewhere=False)),
    ("E_BAD_PARTITION", Verdict(REJECTED, answered=True, retry=True, moved=True, times=1)),
    ("E_INVALID", Verdict(REJECTED, answered=True, retry=True, times=1)),
    ("E_NEVER_HEARD_OF", Verdict(UNCERTAIN, answered=True, retry=True, times=1)),
    ("too", Verdict(UNCERTAIN, answered=True, retry=True, times=1)),
    ("", Verdict(UNCERTAIN, answered=True, retry=True, times=1)),
]


@pytest.mark.parametrize(("code", "verdict"), CODES)
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("unanswered", [False, True])
def test_codes(code: str, verdict: Verdict, keyed: bool, unanswered: bool) -> None:
    """An answer is an answer: a key changes nothing."""
    assert judge(ServerError(code, "why"), keyed=keyed, retry_unanswered=unanswered) == verdict


@pytest.mark.parametrize("detail", ["exiting", "PUB failed exiting"])
def test_a_node_that_is_about_to_end_has_lost_its_lead(detail: str) -> None:
    error = ServerError("E_PUB_FAILED", detail)
    verdict = judge(error, keyed=True, retry_unanswered=False)
    assert verdict == Verdict(UNCERTAIN, answered=True, retry=True, moved=True)


FREELY = Verdict(NOT_SENT, answered=True, retry=True, moved=True)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (ConnectError("refused"), FREELY),
        (ConnectError("bad secret", permanent=True), FREELY._replace(retry=False)),
        (TlsRequired("no TLS"), FREELY),
        (TlsRequired("no TLS", permanent=True), FREELY._replace(retry=False)),
        (ConnectionLost("reset before the write"), FREELY),
        (DiscoveryError("no lookup"), FREELY),
        (TransportError("no leader"), FREELY),
        (PoolTimeout("all lent"), Verdict(NOT_SENT, answered=True, retry=False)),
        (TurnTimeout("behind others"), Verdict(NOT_SENT, answered=True, retry=False)),
    ],
)
@pytest.mark.parametrize("keyed", [False, True])
def test_nothing_was_sent(error: TransportError, verdict: Verdict, keyed: bool) -> None:
    assert judge(error, keyed=keyed, retry_unanswered=False) == verdict


@pytest.mark.parametrize(
    "error",
    [
        ConnectionLost("reset", sent=True),
        ResponseTimeout("silence"),
        ProtocolError("garbage"),
        CompressionError("garbage"),
    ],
)
@pytest.mark.parametrize(
    ("keyed", "unanswered", "retry"),
    [(False, False, True), (False, True, True), (True, False, False), (True, True, True)],
)
def test_no_answer(error: TransportError, keyed: bool, unanswered: bool, retry: bool) -> None:
    assert judge(error, keyed=keyed, retry_unanswered=unanswered) == Verdict(
        UNCERTAIN, answered=False, retry=retry, moved=True
    )


def test_another_node_may_be_tried_unless_all_of_them_are_busy() -> None:
    errors = [ServerError(code) for code, _ in CODES] + [ConnectError(""), ResponseTimeout("")]
    verdicts = [judge(error, keyed=False, retry_unanswered=False) for error in errors]
    assert [verdict.elsewhere for verdict in verdicts].count(False) == 1


# The state of one call.


def attempt(code: str = "E_PUB_FAILED") -> Attempt:
    return Attempt("h:4150", 0, code, 0.1)


def failed(retry: Retry, *codes: str) -> Retry:
    for code in codes:
        verdict = judge(ServerError(code), keyed=False, retry_unanswered=False)
        retry = retry.after(attempt(code), verdict)
    return retry


def test_a_call_begins_with_nothing_sent() -> None:
    retry = Retry(10.0)
    assert (retry.outcome, retry.answered, retry.attempts) == (NOT_SENT, True, ())


def test_attempts_are_kept_in_order_and_the_state_before_is_untouched() -> None:
    first = Retry(10.0)
    second = failed(first, "E_PUB_FAILED", "E_INVALID")
    assert second.attempts == (attempt("E_PUB_FAILED"), attempt("E_INVALID"))
    assert first.attempts == ()
    assert (second.deadline, second.pause, second.max_pause) == (10.0, 0.05, 1.0)


@pytest.mark.parametrize(
    ("outcomes", "worst"),
    [
        ([NOT_SENT], NOT_SENT),
        ([NOT_SENT, REJECTED], REJECTED),
        ([REJECTED, NOT_SENT], REJECTED),
        ([UNCERTAIN, REJECTED, NOT_SENT], UNCERTAIN),
        ([NOT_SENT, REJECTED, UNCERTAIN], UNCERTAIN),
        ([REJECTED, UNCERTAIN, NOT_SENT], UNCERTAIN),
    ],
)
def test_the_outcome_never_improves(outcomes: list[Outcome], worst: Outcome) -> None:
    retry = Retry(10.0)
    for outcome in outcomes:
        retry = retry.after(attempt(), Verdict(outcome, answered=True, retry=True))
    assert retry.outcome is worst


def test_one_unanswered_attempt_is_remembered() -> None:
    silent = Verdict(UNCERTAIN, answered=False, retry=True)
    retry = Retry(10.0).after(attempt("ResponseTimeout"), silent)
    assert not retry.answered
    assert not failed(retry, "E_PUB_FAILED").answered
    assert failed(Retry(10.0), "E_PUB_FAILED").answered


@pytest.mark.parametrize(("now", "left"), [(0.0, 10.0), (9.5, 0.5), (10.0, 0.0), (99.0, 0.0)])
def test_time_left(now: float, left: float) -> None:
    assert Retry(10.0).left(now) == left


ALWAYS = Verdict(UNCERTAIN, answered=True, retry=True)


def test_the_deadline_ends_the_retries() -> None:
    retry = failed(Retry(10.0), "E_PUB_FAILED")
    assert retry.may_retry(ALWAYS, 9.999)
    assert not retry.may_retry(ALWAYS, 10.0)
    assert not retry.may_retry(ALWAYS, 10.001)


def test_a_verdict_may_end_them() -> None:
    assert not failed(Retry(10.0), "E_BAD_TOPIC").may_retry(REFUSED, 0.0)


def test_without_a_limit_only_time_ends_them() -> None:
    assert failed(Retry(10.0), *["E_PUB_FAILED"] * 1000).may_retry(ALWAYS, 0.0)


@pytest.mark.parametrize(("attempts", "more"), [(1, True), (2, True), (3, False), (4, False)])
def test_the_limit_counts_attempts(attempts: int, more: bool) -> None:
    retry = failed(Retry(10.0, limit=3), *["E_PUB_FAILED"] * attempts)
    assert retry.may_retry(ALWAYS, 0.0) == more


@pytest.mark.parametrize(
    ("codes", "more"),
    [
        (["E_INVALID"], True),
        (["E_INVALID", "E_INVALID"], False),
        (["E_INVALID", "E_PUB_FAILED", "E_INVALID"], False),
        (["E_BAD_PARTITION", "E_INVALID"], True),
        (["E_PUB_FAILED", "E_PUB_FAILED", "E_BAD_PARTITION"], True),
        (["E_BAD_PARTITION", "E_FAILED_ON_NOT_LEADER", "E_BAD_PARTITION"], False),
        (["E_ONE", "E_TWO"], True),
        (["E_ONE", "E_TWO", "E_ONE"], False),
    ],
)
def test_some_codes_are_retried_once(codes: list[str], more: bool) -> None:
    verdict = judge(ServerError(codes[-1]), keyed=False, retry_unanswered=False)
    assert verdict.times == 1
    assert failed(Retry(10.0), *codes).may_retry(verdict, 0.0) == more


def test_a_bound_of_two() -> None:
    verdict = Verdict(REJECTED, answered=True, retry=True, times=2)
    assert failed(Retry(10.0), "E_X", "E_X").may_retry(verdict, 0.0)
    assert not failed(Retry(10.0), "E_X", "E_X", "E_X").may_retry(verdict, 0.0)


def highest(low: float, high: float) -> float:
    assert low == 0.0
    return high


@pytest.mark.parametrize(
    ("attempts", "pause"),
    [(1, 0.05), (2, 0.1), (3, 0.2), (4, 0.4), (5, 0.8), (6, 1.0), (7, 1.0), (5000, 1.0)],
)
def test_pauses_double_up_to_the_longest(attempts: int, pause: float) -> None:
    retry = failed(Retry(100.0), *["E_PUB_FAILED"] * attempts)
    assert retry.delay(0.0, highest) == pytest.approx(pause)
    assert retry.delay(0.0, lambda low, high: low) == 0.0


def test_a_pause_longer_than_the_longest_is_cut() -> None:
    retry = failed(Retry(100.0, pause=5.0, max_pause=2.0), "E_PUB_FAILED")
    assert retry.delay(0.0, highest) == 2.0


@pytest.mark.parametrize(("now", "pause"), [(9.0, 0.05), (9.99, 0.01), (10.0, 0.0), (11.0, 0.0)])
def test_no_pause_goes_beyond_the_deadline(now: float, pause: float) -> None:
    retry = failed(Retry(10.0), "E_PUB_FAILED")
    assert retry.delay(now, highest) == pytest.approx(pause)


ANY_CODE = st.sampled_from([code for code, _ in CODES])


@given(
    st.lists(ANY_CODE, min_size=1, max_size=20),
    st.integers(0, 5),
    st.floats(0, 20),
    st.floats(0, 1),
)
def test_any_call(codes: list[str], limit: int, now: float, jitter: float) -> None:
    retry = Retry(10.0, limit=limit)
    for code in codes:
        verdict = judge(ServerError(code), keyed=True, retry_unanswered=False)
        before, retry = retry, retry.after(attempt(code), verdict)
        assert retry.outcome.severity == max(before.outcome.severity, verdict.outcome.severity)
        delay = retry.delay(now, lambda low, high: low + jitter * (high - low))
        assert 0 <= delay <= min(1.0, retry.left(now))
        if retry.may_retry(verdict, now):
            assert now < 10.0
            assert not limit or len(retry.attempts) < limit
