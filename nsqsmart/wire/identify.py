"""IDENTIFY: what the client offers and what the server grants (protocol#identify).

The only place where seconds become milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nsqsmart.errors import ProtocolError
from nsqsmart.names import Dialect
from nsqsmart.wire.frames import OK

T = TypeVar("T")

_REDESIGNED_MARK = "-HA."
_OFF = -1
_MAX_INT = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What the client says of itself and asks for; times in seconds.

    None or 0 leaves the server's default; ``heartbeat_interval`` and ``output_buffer_timeout``
    of -1 switch it off (SUB is refused without heartbeats).
    """

    client_id: str
    hostname: str
    user_agent: str
    heartbeat_interval: float | None = None
    msg_timeout: float | None = None
    output_buffer_size: int | None = None
    output_buffer_timeout: float | None = None
    sample_rate: int = 0
    tls: bool = False
    snappy: bool = False
    deflate: bool = False
    deflate_level: int = 6
    extend_support: bool = False
    desired_tag: str = ""
    ext_filter: Mapping[str, Any] | None = field(default=None, compare=False)

    def encode(self) -> bytes:
        """The JSON document; options that were not asked for are left out."""
        document: dict[str, Any] = {
            "client_id": self.client_id,
            "hostname": self.hostname,
            "user_agent": self.user_agent,
            "feature_negotiation": True,
            "tls_v1": self.tls,
            "snappy": self.snappy,
            "deflate": self.deflate,
        }
        optional = {
            "heartbeat_interval": _milliseconds(self.heartbeat_interval),
            "msg_timeout": _milliseconds(self.msg_timeout),
            "output_buffer_size": self.output_buffer_size,
            "output_buffer_timeout": _milliseconds(self.output_buffer_timeout),
            "sample_rate": self.sample_rate or None,
            # Absent means level 0 to a redesigned nsqd (protocol#identify-fields).
            "deflate_level": self.deflate_level if self.deflate else None,
            "extend_support": self.extend_support or None,
            "desired_tag": self.desired_tag or None,
            "ext_filter": None if self.ext_filter is None else dict(self.ext_filter),
        }
        document |= {name: value for name, value in optional.items() if value is not None}
        return json.dumps(document, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What the server answers; times in seconds. The defaults are those of both servers."""

    version: str = ""
    max_rdy_count: int = 2500
    max_msg_timeout: float = 900.0
    msg_timeout: float = 60.0
    tls: bool = False
    snappy: bool = False
    deflate: bool = False
    auth_required: bool = False

    @property
    def dialect(self) -> Dialect:
        """Told from the version: redesigned nsqds say ``-HA.`` in it."""
        redesigned = _REDESIGNED_MARK in self.version
        return Dialect.REDESIGNED if redesigned else Dialect.ORIGINAL


def decode_grant(data: bytes) -> Grant:
    """Read the answer to IDENTIFY; raises :class:`ProtocolError` if it is none.

    A plain OK comes from a server without feature negotiation: nothing is granted.
    """
    if data == OK:
        return Grant()
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("the answer to IDENTIFY is neither OK nor JSON") from error
    if not isinstance(document, dict):
        raise ProtocolError("the answer to IDENTIFY is no JSON object")
    default = Grant()
    return Grant(
        version=_read(document, "version", default.version),
        max_rdy_count=_read(document, "max_rdy_count", default.max_rdy_count),
        max_msg_timeout=_read(document, "max_msg_timeout", 900_000) / 1000,
        msg_timeout=_read(document, "msg_timeout", 60_000) / 1000,
        tls=_read(document, "tls_v1", default.tls),
        snappy=_read(document, "snappy", default.snappy),
        deflate=_read(document, "deflate", default.deflate),
        auth_required=_read(document, "auth_required", default.auth_required),
    )


def _read(document: dict[str, Any], name: str, default: T) -> T:
    value = document.get(name, default)
    # bool is an int to Python, and no count to us.
    if type(value) is not type(default) or (isinstance(value, int) and not 0 <= value <= _MAX_INT):
        kind = type(default).__name__
        raise ProtocolError(f"the answer to IDENTIFY has no usable {name}: {kind} expected")
    return value


def _milliseconds(seconds: float | None) -> int | None:
    if seconds is None:
        return None
    return _OFF if seconds < 0 else round(seconds * 1000)
