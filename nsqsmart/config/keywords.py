"""The options as keywords, for type checkers: ``Unpack`` of these is what clients take.

Made from the option table by ``python -m tests.typed_options``; tests/architecture/test_options.py
checks that they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from os import PathLike
from typing import Any, TypedDict

from nsqsmart.metrics import Metrics
from nsqsmart.names import Address


class ClientOptions(TypedDict, total=False):
    """The options of :class:`~nsqsmart.config.ClientConfig`."""

    dial_timeout: float | str
    handshake_timeout: float | str
    write_timeout: float | str
    response_timeout: float | str | None
    heartbeat_interval: float | str
    msg_timeout: float | str | None
    output_buffer_size: int
    output_buffer_timeout: float | str
    sample_rate: int
    max_frame_size: int
    deflate: bool
    deflate_level: int
    snappy: bool
    auth_secret: str | None
    allow_plaintext_auth: bool
    client_id: str | None
    hostname: str | None
    user_agent: str | None
    tls_v1: bool
    tls_root_ca_file: str | PathLike[str] | None
    tls_cert: str | PathLike[str] | None
    tls_key: str | PathLike[str] | None
    tls_insecure_skip_verify: bool
    tls_min_version: str
    tls_config: Any
    tls_lifetime: float | str | None
    lookupd_poll_interval: float | str | None
    lookupd_poll_jitter: float
    lookupd_request_timeout: float | str
    lookupd_failure_threshold: int
    lookupd_min_refresh_interval: float | str
    listlookup_interval: float | str
    retry_pause: float | str
    max_retry_pause: float | str
    address_map: Mapping[str, str] | Callable[[Address], Address | str] | None
    address_policy: Callable[[Address], bool] | None
    metrics: Metrics | None


class ProducerOptions(ClientOptions, total=False):
    """The options of :class:`~nsqsmart.config.ProducerConfig`."""

    publish_timeout: float | str
    publish_attempts: int
    retry_unanswered: bool
    uncertain_fence: float | str
    pool_size: int
    pool_idle_timeout: float | str | None
    sharding: str | Callable[[object, int], int]
    ordering: str
    serialize: bool
    trace: bool
    async_max_messages: int
    async_max_bytes: int
    on_full: str
    close_timeout: float | str
    spool: str | PathLike[str] | None
    spool_max_bytes: int


class ConsumerOptions(ClientOptions, total=False):
    """The options of :class:`~nsqsmart.config.ConsumerConfig`."""

    workers: int
    max_in_flight: int
    batch_max_messages: int
    batch_max_delay: float | str
    touch_every: float | str | None
    max_attempts: int
    on_giving_up: Callable[..., object] | None
    dead_letter_topic: str | None
    rdy_mode: str
    rdy_redistribute_interval: float | str
    ordered: str | bool
    force_ordered: bool
    on_order_violation: str | Callable[..., object]
    positions: bool
    start_at: int | str | datetime | None
    on_channel_lost: str
    desired_tag: str | None
    ext_filter: Mapping[str, Any] | None
    default_requeue_delay: float | str
    max_requeue_delay: float | str
    backoff_multiplier: float | str
    max_backoff_duration: float | str
    close_timeout: float | str


class AdminOptions(ClientOptions, total=False):
    """The options of :class:`~nsqsmart.config.AdminConfig`."""

    admin_timeout: float | str
    nsqd_http_addresses: str | None
