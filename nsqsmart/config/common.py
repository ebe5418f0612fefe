"""The options that every client has, and those of the embedded cluster.

Where go-nsq has an option of that meaning, its name is used. Times are seconds. An option whose
default depends on the server is None here, and its help says what that becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nsqsmart.config.table import check_fields, choice, flag, integer, number, seconds, text, thing
from nsqsmart.config.values import Kind
from nsqsmart.errors import ConfigError
from nsqsmart.metrics import Metrics
from nsqsmart.names import MAX_PARTITION, Address

_MIB = 1 << 20


def _is_map(value: object) -> bool:
    return callable(value) or isinstance(value, Mapping)


def _is_tls_context(value: object) -> bool:
    # ssl stays out of this floor; a context is what can wrap memory buffers.
    return hasattr(value, "wrap_bio")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What every client can be told: connections, TLS, discovery.

    Checked when it is made; raises :class:`~nsqsmart.errors.ConfigError`. Text is read, so
    ``"250ms"`` is 0.25. Vary one with :func:`dataclasses.replace`.
    """

    # One connection.
    dial_timeout: float = seconds(
        5.0, "Longest time for one TCP connection to come up.", minimum=0.01, maximum=300
    )
    handshake_timeout: float = seconds(
        5.0,
        "Longest time for TLS, IDENTIFY and AUTH together.",
        minimum=0.01,
        maximum=300,
    )
    write_timeout: float = seconds(
        10.0, "Longest time for one write to be taken by the kernel.", minimum=0.1, maximum=300
    )
    response_timeout: float | None = seconds(
        None,
        "Longest wait for one answer. None: 10 s from an original nsqd, 20 s from a redesigned "
        "one, which answers after 12 s while a follower is dead.",
        minimum=0.01,
        maximum=600,
    )
    heartbeat_interval: float = seconds(
        30.0,
        "How often nsqd sends a heartbeat; a connection silent for 2.5 of them is dead.",
        minimum=1,
        maximum=60,
    )
    msg_timeout: float | None = seconds(
        None,
        "How long nsqd waits for a message to be answered before it sends it again. "
        "None: as nsqd is set.",
        minimum=1,
        maximum=900,
    )
    output_buffer_size: int = integer(
        16384,
        "Bytes that nsqd gathers before it writes to a consumer.",
        minimum=64,
        maximum=65536,
        off=-1,
    )
    output_buffer_timeout: float = seconds(
        0.025,
        "Longest time that nsqd holds messages back in its output buffer. "
        "A redesigned nsqd refuses more than 1 s.",
        minimum=0.025,
        maximum=30,
        off=-1,
    )
    sample_rate: int = integer(
        0, "Percentage of the messages to be sent; 0 is all.", minimum=0, maximum=99
    )
    max_frame_size: int = integer(
        5 * _MIB + 64,
        "Largest frame, in bytes, to be received. A larger one ends the connection.",
        minimum=1024,
        maximum=(1 << 31) - 1,
    )
    deflate: bool = flag("Compress the connection by deflate.")
    deflate_level: int = integer(
        6, "1 is fastest, 9 is smallest; nsqd may cap it.", minimum=1, maximum=9
    )
    snappy: bool = flag("Compress the connection by snappy.")
    auth_secret: str | None = text("Secret for AUTH.", secret=True)
    allow_plaintext_auth: bool = flag("Send the secret to another host without TLS.")
    client_id: str | None = text("Name of this client in nsqd's statistics. None: the host name.")
    hostname: str | None = text("Host name in nsqd's statistics. None: that of this machine.")
    user_agent: str | None = text("Program name in nsqd's statistics. None: nsqsmart/VERSION.")

    # TLS to nsqd.
    tls_v1: bool = flag("Use TLS to nsqd; nsqs:// addresses say the same.")
    tls_root_ca_file: str | None = text(
        "PEM file of the authorities to trust. None: those of the system.", kind=Kind.PATH
    )
    tls_cert: str | None = text("PEM file of the client's certificate.", kind=Kind.PATH)
    tls_key: str | None = text(
        "PEM file of the client's key. None: it is in tls_cert.", kind=Kind.PATH
    )
    tls_insecure_skip_verify: bool = flag("Trust any certificate of any host: for tests only.")
    tls_min_version: str = choice(("tls1.2", "tls1.3"), "Lowest version of TLS to be spoken.")
    tls_config: Any = thing(  # an ssl.SSLContext, which this floor cannot name
        "A context of your own, in place of the other tls options.",
        noun="an ssl.SSLContext",
        accepts=_is_tls_context,
    )
    tls_lifetime: float | None = seconds(
        None,
        "Retire a TLS connection at this age; 0 is never. None: 4 s where the version of nsqd "
        "says -HA., for it breaks them after 5 s, else never.",
        minimum=0,
        maximum=86400,
    )

    # Discovery.
    lookupd_poll_interval: float | None = seconds(
        None,
        "Age at which the topology of a topic is looked up anew. "
        "None: 60 s, or 20 s where a topic has partitions.",
        minimum=0.01,
        maximum=300,
    )
    lookupd_poll_jitter: float = number(
        0.3, "Share of the poll interval by which polls are spread.", minimum=0, maximum=1
    )
    lookupd_request_timeout: float = seconds(
        2.0, "Longest time for one nsqlookupd to answer.", minimum=0.01, maximum=300
    )
    lookupd_failure_threshold: int = integer(
        3,
        "Failures in a row after which an nsqlookupd is asked less often.",
        minimum=1,
        maximum=1000,
    )
    lookupd_min_refresh_interval: float = seconds(
        1.0, "Shortest time between two forced lookups of a topic.", minimum=0.01, maximum=60
    )
    listlookup_interval: float = seconds(
        60.0, "How often to ask for further nsqlookupds; 0 is never.", minimum=0, maximum=3600
    )
    retry_pause: float = seconds(
        0.05,
        "First pause between attempts; it doubles, with full jitter.",
        minimum=0.001,
        maximum=60,
    )
    max_retry_pause: float = seconds(
        1.0, "Longest pause between attempts.", minimum=0.001, maximum=300
    )
    address_map: Mapping[str, str] | Callable[[Address], Address | str] | None = thing(
        "Where to dial in place of a broadcast address: a dict of 'host:port', or a callable.",
        noun="a dict or callable",
        accepts=_is_map,
    )
    address_policy: Callable[[Address], bool] | None = thing(
        "Called with an address learned from a lookup; False refuses it.",
        noun="a callable",
        accepts=callable,
    )
    metrics: Metrics | None = thing(
        "The Metrics to report to. None: those that nsqsmart.metrics.use() was given.",
        noun="a nsqsmart.metrics.Metrics",
        accepts=lambda value: isinstance(value, Metrics),
    )

    def __post_init__(self) -> None:
        """Check every option, then the options against each other."""
        check_fields(self)
        self.check_together()

    def check_together(self) -> None:
        """Raise :class:`ConfigError` where options contradict each other."""
        if self.deflate and self.snappy:
            raise ConfigError("deflate and snappy exclude each other: choose one")
        if self.retry_pause > self.max_retry_pause:
            raise ConfigError(
                f"retry_pause {self.retry_pause} exceeds max_retry_pause {self.max_retry_pause}"
            )
        if self.tls_key and not self.tls_cert:
            raise ConfigError("tls_key needs tls_cert, the certificate it belongs to")
        own = [name for name in TLS_MATERIAL if getattr(self, name)]
        if self.tls_config is not None and own:
            raise ConfigError(f"tls_config replaces {', '.join(own)}: give one or the other")


TLS_MATERIAL = ("tls_root_ca_file", "tls_cert", "tls_key", "tls_insecure_skip_verify")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedConfig:
    """What the query of ``nsq+embedded://NAME`` can say of the cluster itself."""

    partitions: int = integer(
        1, "Partitions of a topic made on first use.", minimum=1, maximum=MAX_PARTITION + 1
    )
    dialect: str = choice(("redesigned", "original"), "Which server the cluster plays.")

    def __post_init__(self) -> None:
        """Check every option."""
        check_fields(self)
