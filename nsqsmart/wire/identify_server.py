"""IDENTIFY, the server's half: what a client asks for, judged and answered (protocol#identify).

A real server reads the document with Go's encoding/json and answers with keys in a fixed order;
both are repeated here, because clients meet both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from nsqsmart.names import Dialect
from nsqsmart.wire.frames import OK

_OFF = -1
_MIN_BUFFER = 64
_MAX_BUFFER = 64 * 1024
_MIN_INTERVAL = 1000
_MAX_TAG = 100
_MAX_SAMPLE_RATE = 99
_DEFAULT_DEFLATE_LEVEL = 6
_INT64 = 2**63
_UNDECODABLE = "IDENTIFY failed to decode JSON body"


class IdentifyRefused(Exception):
    """The document cannot be accepted: an error frame of *code* and *text* (fatal)."""

    def __init__(self, text: str, code: str = "E_BAD_BODY") -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a server offers and allows; times in milliseconds, as on the wire."""

    dialect: Dialect
    version: str
    msg_timeout: int = 60_000
    max_msg_timeout: int = 900_000
    heartbeat_interval: int = 30_000
    max_heartbeat_interval: int = 60_000
    max_rdy_count: int = 2500
    tls: bool = False
    snappy: bool = True
    deflate: bool = True
    max_deflate_level: int = 6
    auth_required: bool = False

    @property
    def redesigned(self) -> bool:
        """Whether the redesigned server's rules hold."""
        return self.dialect is Dialect.REDESIGNED


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What holds for a connection after its IDENTIFY; times in milliseconds.

    ``heartbeat_interval`` is 0 when heartbeats are off. ``tls``, ``snappy`` and ``deflate`` are
    what was granted, and only then follow the reply.
    """

    client_id: str = ""
    hostname: str = ""
    user_agent: str = ""
    negotiated: bool = False
    heartbeat_interval: int = 30_000
    msg_timeout: int = 60_000
    output_buffer_size: int = 16 * 1024
    output_buffer_timeout: int = 250
    sample_rate: int = 0
    tls: bool = False
    snappy: bool = False
    deflate: bool = False
    deflate_level: int = 0
    desired_tag: str = ""
    extend_support: bool = False
    ext_filter: dict[str, Any] | None = field(default=None, compare=False)


def unidentified(policy: Policy, peer: str) -> Settled:
    """What holds before any IDENTIFY; *peer* is the client's address."""
    return Settled(
        client_id=peer,
        hostname=peer,
        heartbeat_interval=policy.heartbeat_interval,
        msg_timeout=policy.msg_timeout,
        output_buffer_size=100 if policy.redesigned else 16 * 1024,
        output_buffer_timeout=50 if policy.redesigned else 250,
    )


def settle(body: bytes, policy: Policy, before: Settled) -> Settled:
    """Judge the document *body*; 0 and absent leave what held *before*.

    Raises :class:`IdentifyRefused`.
    """
    asked = _Document(body, policy)
    heartbeat = _heartbeat(asked.integer("heartbeat_interval"), policy, before)
    size, timeout = _buffer(asked, policy, before)
    sample_rate = asked.integer("sample_rate")
    if not 0 <= sample_rate <= _MAX_SAMPLE_RATE:
        raise IdentifyRefused(f"IDENTIFY sample rate ({sample_rate}) is invalid")
    msg_timeout = asked.integer("msg_timeout")
    if msg_timeout and not _MIN_INTERVAL <= msg_timeout <= policy.max_msg_timeout:
        raise IdentifyRefused(f"IDENTIFY msg timeout ({msg_timeout}) is invalid")
    settled = replace(
        _names(asked, policy, before),
        user_agent=asked.text("user_agent"),
        negotiated=asked.flag("feature_negotiation"),
        heartbeat_interval=heartbeat,
        output_buffer_size=size,
        output_buffer_timeout=timeout,
        sample_rate=sample_rate,
        msg_timeout=msg_timeout or before.msg_timeout,
    )
    return _upgrades(asked, policy, settled)


def _names(asked: _Document, policy: Policy, before: Settled) -> Settled:
    client_id, hostname = asked.text("client_id"), asked.text("hostname")
    if not policy.redesigned:
        return replace(before, client_id=client_id, hostname=hostname)
    # Very old clients name themselves otherwise, and only the redesigned server still listens.
    tag = asked.text("desired_tag")
    size = len(tag.encode("utf-8", "replace"))
    if size > _MAX_TAG:
        raise IdentifyRefused(f"IDENTIFY invalid tag len {size}, exceed limit {_MAX_TAG}")
    return replace(
        before,
        client_id=client_id or asked.text("short_id"),
        hostname=hostname or asked.text("long_id"),
        desired_tag=tag,
        extend_support=before.extend_support or asked.flag("extend_support"),
        ext_filter=asked.object("ext_filter"),
    )


def _heartbeat(asked: int, policy: Policy, before: Settled) -> int:
    if asked == _OFF:
        return 0
    if not asked:
        return before.heartbeat_interval
    if not _MIN_INTERVAL <= asked <= policy.max_heartbeat_interval:
        raise IdentifyRefused(f"IDENTIFY heartbeat interval ({asked}) is invalid")
    return asked


def _buffer(asked: _Document, policy: Policy, before: Settled) -> tuple[int, int]:
    """Size and timeout of the output buffer; the dialects judge them in opposite order."""
    size, timeout = asked.integer("output_buffer_size"), asked.integer("output_buffer_timeout")
    if policy.redesigned:
        return _size(size, policy, before), _timeout(timeout, policy, before)
    settled = _timeout(timeout, policy, before)
    return _size(size, policy, before), 0 if size == _OFF else settled


def _size(asked: int, policy: Policy, before: Settled) -> int:
    if asked == _OFF:
        return 1
    if not asked:
        return before.output_buffer_size
    # The redesigned server takes more than it can, and uses what it can.
    if asked < _MIN_BUFFER or (asked > _MAX_BUFFER and not policy.redesigned):
        raise IdentifyRefused(f"IDENTIFY output buffer size ({asked}) is invalid")
    return min(asked, _MAX_BUFFER)


def _timeout(asked: int, policy: Policy, before: Settled) -> int:
    if asked == _OFF:
        return 0
    if not asked:
        return before.output_buffer_timeout
    least, most = (1, 1000) if policy.redesigned else (25, 30_000)
    if not least <= asked <= most:
        raise IdentifyRefused(f"IDENTIFY output buffer timeout ({asked}) is invalid")
    return max(asked, 10) if policy.redesigned else asked


def _upgrades(asked: _Document, policy: Policy, settled: Settled) -> Settled:
    """TLS and compression: none of it without feature negotiation."""
    level = asked.integer("deflate_level")
    wanted = [asked.flag(name) for name in ("tls_v1", "snappy", "deflate")]
    tls, snappy, deflate = (flag and settled.negotiated for flag in wanted)
    snappy, deflate = snappy and policy.snappy, deflate and policy.deflate
    if snappy and deflate:
        text = "cannot enable both deflate and snappy compression"
        raise IdentifyRefused(text, "E_IDENTIFY_FAILED")
    if policy.redesigned:
        # Absent means 0 there, which stores without compressing (protocol#identify-fields).
        effective = min(level, policy.max_deflate_level) if deflate else 0
    else:
        effective = min(level if level > 0 else _DEFAULT_DEFLATE_LEVEL, policy.max_deflate_level)
    return replace(
        settled, tls=tls and policy.tls, snappy=snappy, deflate=deflate, deflate_level=effective
    )


def encode_reply(settled: Settled, policy: Policy) -> bytes:
    """The answer: OK, or what was settled, with the keys in the server's order."""
    if not settled.negotiated:
        return OK
    document: dict[str, Any] = {
        "max_rdy_count": policy.max_rdy_count,
        "version": policy.version,
        "max_msg_timeout": policy.max_msg_timeout,
        "msg_timeout": settled.msg_timeout,
        "tls_v1": settled.tls,
        "deflate": settled.deflate,
        "deflate_level": settled.deflate_level,
        "max_deflate_level": policy.max_deflate_level,
        "snappy": settled.snappy,
        "sample_rate": settled.sample_rate,
        "auth_required": policy.auth_required,
        "output_buffer_size": settled.output_buffer_size,
        "output_buffer_timeout": settled.output_buffer_timeout,
    }
    if not policy.redesigned:
        document |= {"topology_region": "", "topology_zone": ""}
    elif settled.desired_tag:
        document["desired_tag"] = settled.desired_tag
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace")


_COMMON_FIELDS: dict[str, type] = {
    "client_id": str,
    "hostname": str,
    "user_agent": str,
    "feature_negotiation": bool,
    "heartbeat_interval": int,
    "output_buffer_size": int,
    "output_buffer_timeout": int,
    "sample_rate": int,
    "msg_timeout": int,
    "tls_v1": bool,
    "snappy": bool,
    "deflate": bool,
    "deflate_level": int,
}


class _Document:
    """A JSON object as Go decodes it: keys in any case, the last one wins, null is absent.

    Every known field is looked at before any value is judged, as decoding precedes judging.
    """

    def __init__(self, body: bytes, policy: Policy) -> None:
        try:
            document = json.loads(
                body.decode("utf-8", "replace"),
                object_pairs_hook=_Folded,
                parse_constant=_refuse,
            )
        except (ValueError, RecursionError) as error:
            raise IdentifyRefused(_UNDECODABLE) from error
        if document is not None and not isinstance(document, _Folded):
            _refuse()
        self._values: dict[str, Any] = document.folded if document is not None else {}
        _check(self._values, _COMMON_FIELDS | (_REDESIGNED_FIELDS if policy.redesigned else {}))
        if policy.redesigned:
            _check_filter(self.object("ext_filter"))

    def integer(self, name: str) -> int:
        """0 if absent."""
        return int(self._values.get(name) or 0)

    def flag(self, name: str) -> bool:
        """False if absent."""
        return bool(self._values.get(name))

    def text(self, name: str) -> str:
        """Empty if absent."""
        return str(self._values.get(name) or "")

    def object(self, name: str) -> dict[str, Any] | None:
        """None if absent."""
        found = self._values.get(name)
        return None if found is None else found.folded


class _Folded(dict[str, Any]):
    """An object, and its keys in lower case."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.folded = {name.lower(): value for name, value in pairs if value is not None}


_REDESIGNED_FIELDS: dict[str, type] = {
    "short_id": str,
    "long_id": str,
    "desired_tag": str,
    "extend_support": bool,
    "ext_filter": _Folded,
}


_FILTER_FIELDS: dict[str, type] = {
    "type": int,
    "inverse": bool,
    "filter_ext_key": str,
    "filter_data": str,
    "filter_data_list": list,
}
_RULE_FIELDS: dict[str, type] = {"filter_ext_key": str, "filter_data": str}


def _check(values: dict[str, Any], fields: dict[str, type]) -> None:
    """Refuse a value of another type than Go would decode into the field."""
    for name, kind in fields.items():
        value = values.get(name)
        # Floats are no integers to Go, 5000.0 neither; nor is anything beyond 64 bits.
        wide = type(value) is int and not -_INT64 <= value < _INT64
        if value is not None and (type(value) is not kind or wide):
            _refuse()


def _check_filter(rules: dict[str, Any] | None) -> None:
    """Check the JSON types of the filter and of the rules in it; null is an empty rule."""
    if rules is None:
        return
    _check(rules, _FILTER_FIELDS)
    entries = rules.get("filter_data_list")
    if entries is None:
        return
    for position, entry in enumerate(entries):
        if entry is not None and not isinstance(entry, _Folded):
            _refuse()
        entries[position] = {} if entry is None else entry.folded
        _check(entries[position], _RULE_FIELDS)


def _refuse(*_: object) -> NoReturn:
    raise IdentifyRefused(_UNDECODABLE)
