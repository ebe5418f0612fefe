"""From what went wrong to the error a caller of publish sees."""

from __future__ import annotations

from nsqsmart.client.publish_errors import NotAuthorized, NotSupported
from nsqsmart.errors import (
    ClientClosed,
    ConnectionLost,
    MessageRejected,
    NsqError,
    PartitionUnavailable,
    PublishError,
    PublishFailed,
    PublishTimeout,
    ServerError,
    TransportError,
)
from nsqsmart.policy.retry import Retry
from nsqsmart.wire import answers

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


class NoLeader(TransportError):
    """The key's partition, or every one, has no known leader."""


def code_of(error: NsqError) -> str:
    """The server's code, or the kind of failure."""
    return error.code if isinstance(error, ServerError) else type(error).__name__


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
