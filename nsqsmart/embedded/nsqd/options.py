"""What the servers can be told."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from nsqsmart.embedded.broker.channel import BrokerLimits
from nsqsmart.embedded.nsqd.authority import auth_server
from nsqsmart.embedded.serving.versions import VERSIONS
from nsqsmart.names import Dialect

_MAX_REQUEUE = {Dialect.ORIGINAL: 3600.0, Dialect.REDESIGNED: 72 * 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class NsqdOptions:
    """Options of one nsqd; the defaults are the servers' (protocol#server-defaults).

    Times in seconds, sizes in bytes; ``tcp_address`` and ``http_address`` are (host, port), with
    port 0 for any.
    """

    dialect: Dialect = Dialect.REDESIGNED
    tcp_address: tuple[str, int] = ("127.0.0.1", 0)
    http_address: tuple[str, int] = ("127.0.0.1", 0)
    https_address: tuple[str, int] | None = None
    broadcast_address: str = "127.0.0.1"
    broadcast_tcp_port: int = 0
    broadcast_http_port: int = 0
    node_id: int = 0
    data_path: Path | None = None
    sync_timeout: float = 2.0
    msg_timeout: float = 60.0
    max_msg_timeout: float = 900.0
    mem_queue_size: int = 10_000
    max_msg_size: int = 1024 * 1024
    max_body_size: int = 5 * 1024 * 1024
    max_requeue_delay: float | None = None
    client_timeout: float = 60.0
    max_heartbeat_interval: float = 60.0
    max_rdy_count: int = 2500
    max_connections: int = 0
    max_channel_consumers: int = 0
    requeue_to_end: float = 900.0
    max_confirm_window: int = 500
    snappy: bool = True
    deflate: bool = True
    max_deflate_level: int = 6
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_root_ca: Path | None = None
    tls_client_policy: str = ""
    tls_required: bool = False
    tls_min_version: ssl.TLSVersion | None = None
    allow_ext_compatible: bool = False
    allow_sub_ext_compatible: bool = False
    auth_addresses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for an auth server that could never be asked."""
        for address in self.auth_addresses:
            auth_server(address)

    @property
    def version(self) -> str:
        """What this nsqd says it is."""
        return VERSIONS[self.dialect]

    @property
    def redesigned(self) -> bool:
        """Whether it speaks the redesigned dialect."""
        return self.dialect is Dialect.REDESIGNED

    def limits(self) -> BrokerLimits:
        """What the broker must know of these options."""
        longest = self.max_requeue_delay
        return BrokerLimits(
            max_msg_timeout=self.max_msg_timeout,
            max_requeue_delay=_MAX_REQUEUE[self.dialect] if longest is None else longest,
            max_confirm_window=self.max_confirm_window,
            max_attempts=4000 if self.redesigned else 65535,
            max_msg_size=self.max_msg_size,
            memory_queue=self.mem_queue_size,
        )

    def tls_context(self) -> ssl.SSLContext | None:
        """The server side of TLS, None without a certificate."""
        if self.tls_cert is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.tls_cert, self.tls_key)
        if self.redesigned:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        if self.tls_min_version is not None:
            context.minimum_version = self.tls_min_version
        if self.tls_root_ca is not None:
            context.load_verify_locations(self.tls_root_ca)
        if self.tls_client_policy == "require":
            context.verify_mode = ssl.CERT_OPTIONAL
        elif self.tls_client_policy == "require-verify":
            context.verify_mode = ssl.CERT_REQUIRED
        return context
