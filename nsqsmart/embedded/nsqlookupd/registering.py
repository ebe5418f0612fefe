"""The commands of nsqd to nsqlookupd, without the socket (protocol#lookup-tcp)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from nsqsmart.embedded.gotext import GoError, atoi
from nsqsmart.embedded.nsqlookupd.registrations import NO_PARTITION, Key, Peer, Registrations
from nsqsmart.embedded.serving.versions import VERSIONS
from nsqsmart.names import Dialect, is_valid_name

_MAX_PARTITION = 255
_WITH_PARTITION = 2
_MAX_BODY = 1024 * 1024
_FIELDS: dict[str, type] = {
    "broadcast_address": str,
    "tcp_port": int,
    "http_port": int,
    "version": str,
}

Read = Callable[[int], bytes]


class _Refused(Exception):
    """The text of a fatal answer."""


class PeerProtocol:
    """One nsqd's conversation with a lookup daemon."""

    def __init__(self, registrations: Registrations, remote: str, dialect: Dialect) -> None:
        self.introduce: Callable[[], bytes] = lambda: b"{}"
        self.version = VERSIONS[dialect]
        self._registrations = registrations
        self._remote = remote
        self._redesigned = dialect is Dialect.REDESIGNED
        self._peer: Peer | None = None

    def seen(self, now: float) -> None:
        """Something was received."""
        if self._peer is not None:
            self._peer.seen_at = now

    def leave(self) -> None:
        """The connection is gone, and with it what was registered."""
        if self._peer is not None:
            self._registrations.leave(self._peer)

    def execute(self, words: list[str], read: Read) -> tuple[bytes, bool]:
        """Carry out a line; the answer, and whether the connection stays."""
        try:
            return self._execute(words, read), True
        except _Refused as refused:
            return str(refused).encode("utf-8", "surrogateescape"), False

    def _execute(self, words: list[str], read: Read) -> bytes:
        verb = words[0] if words else ""
        if verb == "PING":
            return b"OK"
        if verb == "IDENTIFY":
            return self._identify(read)
        if verb not in ("REGISTER", "UNREGISTER"):
            raise _Refused(f"E_INVALID invalid command {verb}")
        peer = self._peer
        if peer is None:
            raise _Refused("E_INVALID client must IDENTIFY")
        key, channel = self._subject(verb, words[1:], peer)
        change = (
            self._registrations.register if verb == "REGISTER" else self._registrations.unregister
        )
        change(peer, key, channel)
        return b"OK"

    def _identify(self, read: Read) -> bytes:
        if self._peer is not None:
            raise _Refused("E_INVALID cannot IDENTIFY again")
        size = int.from_bytes(read(4))
        if size > _MAX_BODY:
            raise _Refused("E_BAD_BODY IDENTIFY failed to read body")
        try:
            info: dict[str, Any] = json.loads(read(size))
        except (ValueError, RecursionError) as error:
            raise _Refused("E_BAD_BODY IDENTIFY failed to decode JSON body") from error
        if not isinstance(info, dict) or not all(
            info.get(name) and isinstance(info[name], kind) for name, kind in _FIELDS.items()
        ):
            raise _Refused("E_BAD_BODY IDENTIFY missing fields")
        self._peer = Peer(self._remote, info)
        self._registrations.join(self._peer)
        return self.introduce()

    def _subject(self, verb: str, words: list[str], peer: Peer) -> tuple[Key, str | None]:
        """Topic, partition if the dialect has them, channel; an old nsqd names no partition."""
        if not self._redesigned:
            return self._old_subject(verb, words)
        try:
            return self._new_subject(verb, words)
        except _Refused:
            if not peer.is_old:
                raise
            return self._old_subject(verb, words)

    @staticmethod
    def _old_subject(verb: str, words: list[str]) -> tuple[Key, str | None]:
        if not words:
            raise _Refused(f"E_INVALID {verb} insufficient number of params")
        topic, channel = words[0], words[1] if len(words) > 1 else ""
        _check(verb, topic, channel)
        return Key(topic, NO_PARTITION), channel or None

    @staticmethod
    def _new_subject(verb: str, words: list[str]) -> tuple[Key, str | None]:
        if len(words) < _WITH_PARTITION:
            raise _Refused(f"E_INVALID {verb} insufficient number of params")
        topic, token = words[:_WITH_PARTITION]
        channel = words[_WITH_PARTITION] if len(words) > _WITH_PARTITION else ""
        _check(verb, topic, channel)
        try:
            partition = atoi(token.encode("utf-8", "surrogateescape"))
        except GoError:
            partition = -1
        if not (0 <= partition < _MAX_PARTITION or partition == NO_PARTITION):
            text = f"{verb} partition id '{token}' is not valid"
            raise _Refused(f"E_BAD_PARTITIONID {text}")
        return Key(topic, partition), channel or None


def _check(verb: str, topic: str, channel: str) -> None:
    if not is_valid_name(topic):
        raise _Refused(f"E_BAD_TOPIC {verb} topic name '{topic}' is not valid")
    if channel and not is_valid_name(channel):
        raise _Refused(f"E_BAD_CHANNEL {verb} channel name '{channel}' is not valid")
