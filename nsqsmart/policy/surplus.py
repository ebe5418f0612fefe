"""Whether a server sends more messages than it was asked for."""

from __future__ import annotations

_MARGIN = 64
_SLACK = 2


class Surplus:
    """Watches one subscribed connection; times are monotonic seconds.

    RDY bounds what is in flight for the server. It no longer counts a message once it was
    answered, once ``msg_timeout`` is over, or once an operator has emptied the channel. So as many
    unanswered messages as were asked for may be added in each ``msg_timeout``. Twice as many and
    64 are permitted.
    """

    __slots__ = ("_base", "_msg_timeout", "_since")

    def __init__(self, msg_timeout: float) -> None:
        """*msg_timeout*: the server's, in seconds."""
        self._msg_timeout = max(msg_timeout, 0.001)
        self._base: int | None = None
        self._since = 0.0

    def is_too_much(
        self, asked: int, before: int, unanswered: int, heard_at: float, now: float
    ) -> bool:
        """Whether *unanswered* messages are more than a server that knows RDY can have sent.

        *asked* is the largest RDY so far. *before* messages were unanswered when bytes came the
        last time but one, at *heard_at*.
        """
        if self._base is None or before <= max(asked, self._base):
            self._base, self._since = before, heard_at
        periods = 1 + (now - self._since) / self._msg_timeout
        return unanswered - self._base > _SLACK * asked * periods + _MARGIN
