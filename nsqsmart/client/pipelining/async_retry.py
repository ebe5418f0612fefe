"""Messages of publish_async that failed: tried again, and the errors they end with."""

from __future__ import annotations

from time import monotonic

from nsqsmart.client.pipelining.pending import Pending
from nsqsmart.client.publishing.call import Call, with_trace_lines
from nsqsmart.client.publishing.retry import Trial, after_failure, publish_error
from nsqsmart.client.publishing.shared_state import PublishingState
from nsqsmart.client.shared.metrics import note_retry
from nsqsmart.client.shared.receipt import Receipt
from nsqsmart.client.shared.trace_log import publish_failed
from nsqsmart.errors import ClientClosed, Outcome, PublishError, PublishFailed, PublishTimeout
from nsqsmart.policy.topology import Topology
from nsqsmart.wire.answers import BAD_INPUT


def scout(shared: PublishingState, pending: Pending) -> Receipt | PublishError:
    """Publish it here and now: where it failed before, that is where the call goes on."""
    publication = pending.publication
    call = Call(shared, publication, pending.deadline, pending.retry)
    try:
        return with_trace_lines(
            shared.client_id,
            publication,
            lambda: _start(call, pending, shared.directory.known(pending.topic)),
        )
    except ClientClosed:
        return closed_error(pending, Outcome.NOT_SENT)
    except PublishError as error:
        return error


def _start(call: Call, pending: Pending, topology: Topology | None) -> Receipt:
    if pending.reason is None or pending.target is None:
        return call.run()
    return call.resume(topology, pending.target, pending.reason, pending.started)


def account(shared: PublishingState, pending: Pending) -> PublishError | None:
    """Note its failure, if it has one; the error it ends with where there is no other attempt."""
    reason, target = pending.reason, pending.target
    if reason is None or target is None or pending.done():
        return None
    now = monotonic()
    trial = Trial(pending.publication, target, target.partition, pending.started)
    retry = pending.retry or shared.new_retry(pending.deadline)
    pending.retry, verdict = after_failure(shared, trial, retry, reason, now)
    if pending.retry.may_retry(verdict, now):
        pending.reason = None
        note_retry(shared.meter, pending.topic, reason)
        return None
    error = publish_error(pending.topic, pending.retry, reason, now=now)
    if error.code not in BAD_INPUT:
        shared.failing_topics.failed(pending.topic, str(reason), pending.started, ended=True)
    error.__cause__ = reason
    for trace_id in pending.trace_ids:
        elapsed = now - pending.started
        publish_failed(pending.topic, trace_id, error, elapsed, shared.client_id)
    return error


def late_error(pending: Pending) -> PublishError:
    """The error of a message whose deadline came while it waited."""
    return _ended(PublishTimeout, pending, "the deadline came while it waited for earlier messages")


def closed_error(pending: Pending, outcome: Outcome) -> PublishError:
    """The error of a message whose producer was closed."""
    error = _ended(PublishFailed, pending, "the Producer was closed", outcome, code="ClientClosed")
    error.__cause__ = ClientClosed("the Producer was closed")
    return error


def interrupted_error(pending: Pending, outcome: Outcome) -> PublishError:
    """The error of a message whose caller was interrupted."""
    return _ended(PublishFailed, pending, "interrupted", outcome)


def _ended(
    kind: type[PublishError],
    pending: Pending,
    why: str,
    outcome: Outcome = Outcome.NOT_SENT,
    code: str = "",
) -> PublishError:
    retry = pending.retry
    if retry:
        outcome = max(outcome, retry.outcome, key=lambda each: each.severity)
    return kind(
        f"publish to {pending.topic!r}: {why} (outcome: {outcome})",
        outcome=outcome,
        answered=outcome is not Outcome.UNCERTAIN,
        code=code or kind.__name__,
        attempts=retry.attempts if retry else (),
    )
