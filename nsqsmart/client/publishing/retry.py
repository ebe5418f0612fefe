"""What a failed attempt leads to: another one, or the error that the caller sees."""

from __future__ import annotations

from typing import NamedTuple

from nsqsmart.client.publishing.shared_state import PublishingState
from nsqsmart.client.shared.arguments import Publication
from nsqsmart.client.shared.errors import NoLeader, NotAuthorized, NotSupported, code_of
from nsqsmart.errors import (
    Attempt,
    ClientClosed,
    ConnectionLost,
    MessageRejected,
    NsqError,
    PartitionUnavailable,
    PoolTimeout,
    ProtocolError,
    PublishError,
    PublishFailed,
    PublishTimeout,
    TransportError,
)
from nsqsmart.policy.retry import Retry, Verdict, judge
from nsqsmart.policy.topology import Refused, Target
from nsqsmart.wire import answers
from nsqsmart.wire.answers import BAD_INPUT

_HINTS = {
    answers.TOPIC_NOT_EXIST: "create the topic, or check its name",
    "E_AUTH_FIRST": "give auth_secret",
    "E_UNAUTHORIZED": "the secret does not permit publishing to this topic",
    "ConnectError": "check that an nsqd listens there (TCP, usually 4150) and lets this host in",
    "TlsRequired": "nsqs:// and nsqs+lookupd:// use TLS, nsq:// and nsq+lookupd:// do not",
    "ResponseTimeout": "it may be stored; see how busy that nsqd is, or raise response_timeout",
    "ConnectionLost": "it may be stored; see in the log of that nsqd why it hung up",
    "PoolTimeout": "raise pool_size, or publish from fewer threads",
    "TurnTimeout": "messages of one partition go one by one: spread them over more keys",
    "DiscoveryError": "check that an nsqlookupd listens there (HTTP, usually 4161)",
    "NoLeader": "its nsqd is down, or another one is about to lead: try again in half a minute",
    "E_BAD_MESSAGE": "the body exceeds the server's --max-msg-size, or is malformed",
}


def publish_error(topic: str, retry: Retry, error: NsqError, *, now: float) -> PublishError:
    """The error to raise when *error* was the last straw."""
    kind = _kind(error, retry, now)
    code = code_of(error)
    tries = len(retry.attempts)
    times = f"after {tries} attempts" if tries > 1 else "failed"
    return kind(
        f"publish to {topic!r} {times}: {error} (outcome: {retry.outcome})",
        outcome=retry.outcome,
        answered=retry.answered,
        code=code,
        attempts=retry.attempts,
        hint=_hint(error),
    )


def _hint(error: NsqError) -> str:
    """One line that says what to do, where the error itself does not."""
    hint = _HINTS.get(code_of(error), "")
    return "" if isinstance(error, ConnectionLost) and not error.sent else hint


def _kind(error: NsqError, retry: Retry, now: float) -> type[PublishError]:
    code = code_of(error)
    if code in answers.UNAUTHORIZED:
        return NotAuthorized
    if code == "E_EXT_NOT_SUPPORT":
        return NotSupported
    if code in answers.BAD_INPUT:
        return MessageRejected
    if isinstance(error, NoLeader):
        return PartitionUnavailable
    if isinstance(error, ClientClosed):
        return PublishFailed
    return PublishTimeout if now >= retry.deadline else PublishFailed


class Trial(NamedTuple):
    """One attempt: its publication, its target, and when it began."""

    publication: Publication
    target: Target | None
    partition: int | None
    started: float


def _others_are_well(shared: PublishingState, trial: Trial, now: float) -> bool:
    """Whether another node can take the message, after one that does not speak NSQ."""
    topology = shared.directory.topologies().get(trial.publication.topic)
    bad = shared.outages.avoided(now) | {trial.target and trial.target.address}
    return any(each.address not in bad for each in (topology.targets if topology else ()))


def after_failure(
    shared: PublishingState, trial: Trial, retry: Retry, error: TransportError, now: float
) -> tuple[Retry, Verdict]:
    """Where a call stands after *trial* ended with *error*; notes what that says of the node."""
    publication, target = trial.publication, trial.target
    unanswered = shared.config.retry_unanswered
    verdict = judge(error, keyed=publication.keyed, retry_unanswered=unanswered)
    if target and not publication.keyed and isinstance(error.__cause__, ProtocolError):
        verdict = verdict._replace(retry=verdict.retry or _others_are_well(shared, trial, now))
    nsqd = target.name if target else None
    partition = target.partition if target else trial.partition
    attempt = Attempt(nsqd, partition, code_of(error), now - trial.started)
    if attempt.code not in BAD_INPUT:  # which is a matter of the message
        shared.failing_topics.failed(publication.topic, str(error), trial.started)
    silent = not verdict.answered or not error.sent
    if target and silent and not isinstance(error, PoolTimeout):
        shared.lost(target.address, now)
    if isinstance(error, NoLeader):
        shared.directory.doubt(publication.topic, None)
    if target and verdict.moved:
        # Before anything is raised: the next call would be refused as well, or wait for a dead
        # node as long as this call did.
        lost = silent and not verdict.retry
        refused = Refused(target.partition, target.address)
        shared.directory.doubt(publication.topic, refused, lost=lost)
    return retry.after(attempt, verdict), verdict
