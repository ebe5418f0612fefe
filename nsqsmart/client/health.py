"""How a client is, in one word and its reasons."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Health:
    """``state`` is "idle" before the first use, "ready", "degraded", "failing" or "closed".

    A Consumer that was started is "discovering" until it has reached a lookup and subscribed to an
    nsqd. ``ok`` is False for "failing" and "closed": what is tried now is expected to fail.
    ``reasons`` say why it is not "ready".
    """

    state: str
    reasons: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it works as far as it knows."""
        return self.state not in {"failing", "closed"}
