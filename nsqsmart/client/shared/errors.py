"""Errors that end a publish, by the names of :mod:`nsqsmart.errors`."""

from __future__ import annotations

from nsqsmart import errors
from nsqsmart.errors import NsqError, PublishError, ServerError, TransportError


class NotAuthorized(PublishError, errors.NotAuthorized):
    """AUTH is missing, failed, or does not permit this topic."""


class TopicNotExist(PublishError, errors.TopicNotExist):
    """No lookup knows the topic; a redesigned cluster does not create topics by itself."""

    retryable = True


class OrderingNotSupported(PublishError, errors.OrderingNotSupported):
    """``key=`` or ``partition=`` on a server without partitions."""


class NotSupported(PublishError, errors.NotSupported):
    """This server or topic cannot do what was asked (delay, headers, trace)."""


class NoLeader(TransportError):
    """The key's partition, or every one, has no known leader."""


def code_of(error: NsqError) -> str:
    """The server's code, or the kind of failure."""
    return error.code if isinstance(error, ServerError) else type(error).__name__
