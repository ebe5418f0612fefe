"""The interface of a running Consumer: what its subscriptions, dispatcher and timers call.

:class:`~nsqsmart.client.consuming.runtime.RunningConsumer` is the one implementation. It is an
interface because imports only go down, and so that a test can stand in for a consumer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from nsqsmart.client.messages.checked_out import CheckedOut, Timeouts
from nsqsmart.client.messages.dead_letters import DeadLetters
from nsqsmart.client.messages.message import Message
from nsqsmart.config import ConsumerConfig
from nsqsmart.errors import NsqError, ServerError
from nsqsmart.net.ticker import Ticker
from nsqsmart.net.write_buffer import WriteBuffer

S = TypeVar("S")  # the subscription


class ConsumerRuntime(Protocol[S]):
    """Attributes may be read from any thread; methods are called from the thread they name."""

    topic: str
    channel: str
    config: ConsumerConfig
    ticker: Ticker
    draining: bool
    """Whether nothing new is handled any more."""
    watching: bool
    """Whether results matter to the backoff just now; the RDY controller sets it."""
    checked_out: CheckedOut
    dead_letters: DeadLetters
    timeouts: Timeouts

    def snapshot(self) -> list[S]:
        """The subscriptions there are now; any thread."""

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Have *call* made at *when* (monotonic seconds) by the ticker's thread; any thread."""

    # From the reader thread of a subscription.

    def on_subscribed(self, subscription: S) -> None:
        """The server said OK to SUB."""

    def on_ended(self, subscription: S, reason: NsqError) -> None:
        """It never began, or it ended; called once."""

    def on_refusal(self, error: ServerError) -> None:
        """An answer came too late for the server."""

    def on_out_of_order(self, message: Message, before: tuple[int, int]) -> bool:
        """A message came out of order; False ends the subscription."""

    def deliver(self, messages: list[Message]) -> None:
        """Messages for the dispatcher; also from a worker, for the next one of a partition."""

    # From the thread that answers a message.

    def on_dirty(self, buffer: WriteBuffer) -> None:
        """Acknowledgements wait."""

    def on_result(self, message: Message, *, ok: bool) -> None:
        """A handler succeeded, or failed in a way that speaks for backing off."""

    def on_fatal(self, error: BaseException) -> None:
        """A handler raised SystemExit or KeyboardInterrupt: stop, and raise it from run()."""

    def is_starved(self) -> bool:
        """Whether handlers and callers hold nearly all of a connection's share."""
