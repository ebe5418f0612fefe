"""Every exception of nsqsmart.

Families end in ``Error``; leaves say what happened. A publish that fails raises a
:class:`PublishError`, whose ``outcome`` tells which of three things is true of the message
(:class:`Outcome`); transport errors appear in its ``attempts`` and as its ``__cause__``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """What a failed publish means for the message."""

    NOT_SENT = "not_sent"
    """No byte of the command left this process."""
    REJECTED = "rejected"
    """The server answered that it did not store the message."""
    UNCERTAIN = "uncertain"
    """The message may have been stored: no conclusive answer came."""

    @property
    def severity(self) -> int:
        """0 to 2; the outcome of a call is the most severe one of its attempts."""
        return _SEVERITY[self]


_SEVERITY = {Outcome.NOT_SENT: 0, Outcome.REJECTED: 1, Outcome.UNCERTAIN: 2}


class Attempt(NamedTuple):
    """One try of a publish: where it went, what came back, and after how many seconds."""

    nsqd: str | None
    partition: int | None
    code: str
    elapsed: float


class NodeResult(NamedTuple):
    """The result of an Admin operation on one server.

    ``partition`` is None where the server as a whole was asked; ``detail`` says what failed.
    """

    node: str
    partition: int | None
    done: bool
    detail: str


class NsqError(Exception):
    """Base of everything nsqsmart raises on purpose."""


class ConfigError(NsqError, ValueError):
    """A name, option or argument cannot be used; nothing was sent."""


class ClientClosed(NsqError, RuntimeError):
    """The client was used after ``close()``."""


class UsedAfterFork(ClientClosed):
    """A forked child used a consumer of its parent process.

    A Consumer before its ``start()`` there, a PullSubscription, or a message of either: a child
    never speaks on its parent's connections.
    """


class AlreadyResponded(NsqError, RuntimeError):
    """The message was finished or requeued before."""


class AdminError(NsqError):
    """An operation of an Admin failed on some servers, or on all of them.

    ``results`` has one :class:`NodeResult` per server, or per partition of one.
    """

    def __init__(self, message: str, *, results: tuple[NodeResult, ...] = ()) -> None:
        super().__init__(message)
        self.results = results

    @property
    def done(self) -> tuple[NodeResult, ...]:
        """The results of the servers on which the operation succeeded."""
        return tuple(each for each in self.results if each.done)

    @property
    def failed(self) -> tuple[NodeResult, ...]:
        """The results of the servers on which it failed, or may have failed."""
        return tuple(each for each in self.results if not each.done)


class TransportError(NsqError):
    """Family: a connection, a lookup or the pool failed.

    ``sent`` tells whether bytes of the command may have left this process.
    """

    sent = False


class ConnectError(TransportError):
    """No usable connection: refused, unreachable, or the handshake failed.

    ``permanent`` tells that the same options will fail again.
    """

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


class TlsRequired(ConnectError):
    """The client wants TLS and the server does not offer it, or the reverse."""


class ConnectionLost(TransportError):
    """The connection ended; ``sent`` tells whether bytes of a command may have been sent."""

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent


class ResponseTimeout(TransportError, TimeoutError):
    """No answer in time; the connection was retired."""

    sent = True


class PoolTimeout(TransportError, TimeoutError):
    """Other callers used every connection to that nsqd until the deadline."""


class TurnTimeout(TransportError, TimeoutError):
    """Earlier keyed messages of the partition took until the deadline; this one was not sent."""


class DiscoveryError(TransportError):
    """No lookup answered, or none knows the topic."""


class ProtocolError(TransportError):
    """The peer broke the protocol: garbage, a giant length, an answer without a command.

    ``permanent`` tells that the peer speaks another protocol, such as HTTP: a retry cannot help.
    """

    sent = True
    permanent = False


class CompressionError(ProtocolError):
    """A compressed stream is corrupt or would exceed its bound."""


class ServerError(TransportError):
    """An error frame: *code* is its first word, *detail* the rest.

    Raised bare only inside the library; callers see it as ``__cause__`` of a
    :class:`PublishError` or :class:`SubscribeError`.
    """

    sent = True

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code} {detail}".rstrip())
        self.code = code
        self.detail = detail


class SubscribeError(NsqError):
    """The server refuses the subscription for good; ``code`` is the server's."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class NotAuthorized(SubscribeError):
    """AUTH is missing, failed, or does not permit this topic or channel."""


class CannotBe(NsqError):
    """Family: the topic or the servers do not support the call.

    ``hint`` is one line that says what to do, or ``""``; ``retryable`` tells that the same call may
    succeed later.
    """

    retryable = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.hint = hint


class TopicNotExist(CannotBe):
    """No lookup knows the topic; a redesigned cluster does not create topics by itself."""

    retryable = True


class OrderingNotSupported(CannotBe):
    """A key, a partition or ``ordered=True`` on a server without partitions."""


class NotSupported(CannotBe):
    """This server or topic does not support an argument (delay, headers, trace, offsets)."""


class PublishError(NsqError):
    """A publish failed.

    :class:`NotAuthorized` and the subclasses of :class:`CannotBe` are also PublishErrors when a
    publish raises them, and only then.

    Attributes:
        outcome: the worst :class:`Outcome` of all attempts.
        answered: every attempt that was sent got an answer.
        retryable: the same call may succeed later.
        code: the server's code, or a short name of the failure.
        attempts: one :class:`Attempt` per try.
        accepted: messages that earlier batches of the same ``publish_many(split=True)`` stored.
        hint: one line that says what to do, or ``""``.
    """

    retryable = False

    def __init__(
        self,
        message: str,
        *,
        outcome: Outcome = Outcome.NOT_SENT,
        answered: bool = True,
        code: str = "",
        attempts: tuple[Attempt, ...] = (),
        hint: str = "",
    ) -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.outcome = outcome
        self.answered = answered
        self.code = code
        self.attempts = attempts
        self.accepted = 0
        self.hint = hint


class MessageRejected(PublishError):
    """The server will never take this message (size, name, header, trace id)."""


class TopicHasNoChannel(PublishError):
    """A redesigned cluster takes no writes for a topic without a channel."""

    retryable = True


class PartitionUnavailable(PublishError):
    """The key's partition had no leader until the deadline."""

    retryable = True


class PartitionCountChanged(PublishError):
    """The topic's partition count changed; keys map to other partitions from now on."""

    retryable = True


class PublishTimeout(PublishError, TimeoutError):
    """The deadline ended the retries."""

    retryable = True


class PublishFailed(PublishError):
    """The last attempt failed and policy forbids another."""

    retryable = True


class SpoolError(PublishError):
    """A publish failed and could not be kept in the spool either: full, or the disk failed."""

    retryable = True
