"""What ends a publish, and other calls as well: PublishErrors here, and here alone.

They have the names of :mod:`nsqsmart.errors`, by which they are caught.
"""

from __future__ import annotations

from nsqsmart import errors
from nsqsmart.errors import PublishError


class NotAuthorized(PublishError, errors.NotAuthorized):
    """AUTH is missing, failed, or does not permit this topic."""


class TopicNotExist(PublishError, errors.TopicNotExist):
    """No lookup knows the topic; a redesigned cluster does not create topics by itself."""

    retryable = True


class OrderingNotSupported(PublishError, errors.OrderingNotSupported):
    """``key=`` or ``partition=`` on a server without partitions."""


class NotSupported(PublishError, errors.NotSupported):
    """This server or topic cannot do what was asked (delay, headers, trace)."""
