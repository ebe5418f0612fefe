"""The options of a Producer, a Consumer and an Admin, beside those that every client has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from nsqsmart.config.common import ClientConfig
from nsqsmart.config.filters import check_filter
from nsqsmart.config.table import choice, flag, integer, place, seconds, text, thing
from nsqsmart.config.values import Kind
from nsqsmart.errors import ConfigError

MAX_TAG: Final = 100
"""Bytes of a tag that a redesigned nsqd takes in IDENTIFY (protocol#identify)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """What a Producer can be told."""

    publish_timeout: float = seconds(
        60.0,
        "Longest time for one publish with all its retries. A crashed leader is replaced after "
        "20 to 30 s.",
        minimum=0.001,
        maximum=86400,
    )
    publish_attempts: int = integer(
        0, "Most attempts for one publish; 0 leaves it to publish_timeout.", minimum=0
    )
    retry_unanswered: bool = flag(
        "Retry a keyed publish that got no answer: it may then be stored twice, and out of order."
    )
    uncertain_fence: float = seconds(
        0.0,
        "After a keyed publish without an answer nothing follows in its partition for so long: the "
        "server may still carry it out. 20 s is safe; 0 is off.",
        minimum=0,
        maximum=3600,
    )
    pool_size: int = integer(10, "Most connections to one nsqd.", minimum=1, maximum=1000)
    pool_idle_timeout: float | None = seconds(
        None,
        "Close a connection that was not used for so long. None: 1.5 heartbeat intervals.",
        minimum=0.01,
        maximum=86400,
    )
    sharding: str | Callable[[object, int], int] = choice(
        ("java", "murmur3", "crc32", "modulo"),
        "How a key chooses its partition; a callable gets key and partition count.",
        or_callable=True,
    )
    ordering: str = choice(
        ("required", "best-effort"),
        "What key= means on original servers, which keep no order: required raises "
        "OrderingNotSupported, best-effort sends without order, and says so once.",
    )
    serialize: bool = flag(
        "Keyed publishes to one partition take turns; without, a key only chooses the partition.",
        default=True,
    )
    trace: bool = flag("Trace every publish that does not say otherwise.")
    async_max_messages: int = integer(
        1000, "Most messages of publish_async on their way.", minimum=1, maximum=1_000_000
    )
    async_max_bytes: int = integer(
        8 << 20, "Most bytes of such messages.", minimum=1, maximum=(1 << 31) - 1
    )
    on_full: str = choice(
        ("block", "raise"), "What publish_async does when there are that many: wait, or fail."
    )
    close_timeout: float = seconds(
        10.0, "Longest time for close() to end what is under way.", minimum=0, maximum=3600
    )
    spool: str | None = text(
        "Folder for what cannot be sent now: it is written there, and sent by a later publish or "
        "nsqsmart spool flush. None: an error is raised.",
        kind=Kind.PATH,
    )
    spool_max_bytes: int = integer(
        256 << 20, "Most bytes in the spool.", minimum=1, maximum=1 << 50
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """What a Consumer can be told."""

    workers: int = integer(
        4, "Threads that run the handler; 0 runs it on the reader's.", minimum=0, maximum=1000
    )
    max_in_flight: int = integer(
        200, "Most messages that are delivered and not yet answered.", minimum=1, maximum=1000000
    )
    batch_max_messages: int = integer(
        100, "Most messages that batch_handler gets at once.", minimum=1, maximum=100_000
    )
    batch_max_delay: float = seconds(
        0.1, "Longest time that a batch waits for more messages.", minimum=0, maximum=60
    )
    touch_every: float | None = seconds(
        None,
        "TOUCH a message so often while its handler runs. None: never; it must be well below "
        "msg_timeout.",
        minimum=0.05,
        maximum=900,
    )
    max_attempts: int = integer(
        0,
        "Deliveries after which a message is given up; 0 is never. It needs on_giving_up or "
        "dead_letter_topic.",
        minimum=0,
        maximum=65535,
    )
    on_giving_up: Callable[..., object] | None = thing(
        "Called with a message that is given up, which is finished when it has returned.",
        noun="a callable",
        accepts=callable,
    )
    dead_letter_topic: str | None = text(
        "Topic to publish messages to that are given up, before they are finished."
    )
    rdy_mode: str = choice(
        ("adaptive", "level"),
        "RDY of a connection: as much as a plain handler needs, which gets messages sooner and "
        "hoards none, or always its share. Ordered topics, batches and pulling have the share.",
    )
    rdy_redistribute_interval: float = seconds(
        5.0,
        "Longest turn of a connection where there are more than max_in_flight.",
        minimum=0.001,
        maximum=5,
    )
    ordered: str | bool = choice(
        ("auto", True, False), "Consume in order; auto follows what the lookup says."
    )
    force_ordered: bool = flag(
        "Consume in order where the topic is not marked ordered. This marks the channel until an "
        "operator resets it."
    )
    on_order_violation: str | Callable[..., object] = choice(
        ("stop", "warn"),
        "What to do when a partition's messages come out of order.",
        or_callable=True,
    )
    positions: bool = flag("Ask for the offset and size of every message.")
    start_at: int | str | datetime | None = place(
        "Where to begin, once in each partition: an offset in bytes, a datetime, head or tail. It "
        "moves the channel, for all who consume it (redesigned nsqds). None: where the channel is."
    )
    on_channel_lost: str = choice(
        ("auto", "rewind", "warn"),
        "What to do when a change of leader has made the cluster forget a channel that had no "
        "message finished yet, and so skip some: set it back, or say so. auto sets back what is "
        "ordered.",
    )
    desired_tag: str | None = text(
        "Take the messages with this tag before others do (topics with extend_support)."
    )
    ext_filter: Mapping[str, Any] | None = thing(
        "Take only the messages whose header matches, on topics with extend_support; the others "
        "count as finished. A dict as the server has it: type, filter_ext_key, filter_data, ...",
        noun="a dict",
        accepts=lambda value: isinstance(value, Mapping),
    )
    default_requeue_delay: float = seconds(
        90.0, "Delay of a message that failed; attempts multiply it.", minimum=0, maximum=3600
    )
    max_requeue_delay: float = seconds(
        900.0, "Longest delay of a message that failed.", minimum=0, maximum=3600
    )
    backoff_multiplier: float = seconds(
        1.0, "First pause after a failure; it doubles.", minimum=0, maximum=3600
    )
    max_backoff_duration: float = seconds(
        120.0, "Longest pause after failures; 0 switches backoff off.", minimum=0, maximum=3600
    )
    close_timeout: float = seconds(
        30.0, "Longest time for close() to drain.", minimum=0, maximum=3600
    )

    def check_together(self) -> None:
        """Raise :class:`ConfigError` where options contradict each other."""
        ClientConfig.check_together(self)
        if self.sample_rate and self.ordered is True:
            raise ConfigError("sample_rate drops messages: it cannot go with ordered=True")
        if self.force_ordered and self.ordered is not True:
            raise ConfigError("force_ordered needs ordered=True")
        if self.on_giving_up is not None and self.dead_letter_topic is not None:
            raise ConfigError("on_giving_up and dead_letter_topic exclude each other: choose one")
        if self.max_attempts and self.on_giving_up is None and self.dead_letter_topic is None:
            raise ConfigError(
                f"max_attempts={self.max_attempts} would drop messages: say who gets them by "
                "on_giving_up or dead_letter_topic"
            )
        if self.touch_every and self.msg_timeout and self.touch_every >= self.msg_timeout:
            raise ConfigError(
                f"touch_every {self.touch_every} must be less than msg_timeout {self.msg_timeout}"
            )
        if self.desired_tag and len(self.desired_tag.encode()) > MAX_TAG:
            raise ConfigError(f"desired_tag has more than {MAX_TAG} bytes")
        if self.ext_filter is not None:
            check_filter(self.ext_filter)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """What an Admin can be told."""

    admin_timeout: float = seconds(
        150.0,
        "Longest time for one call of an Admin. A redesigned cluster takes up to two minutes to "
        "open a new topic.",
        minimum=0.01,
        maximum=86400,
    )
    nsqd_http_addresses: str | None = text(
        "HTTP addresses of the nsqds of an nsq:// address, in their order, as HOST:4151,HOST:4151: "
        "an nsqd does not tell its own."
    )
