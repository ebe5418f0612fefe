"""The commands of nsqd to nsqlookupd (protocol#lookup-tcp)."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Any

from nsqsmart.embedded.gotext import GoError, atoi, shown
from nsqsmart.embedded.nsqlookupd.registrations import NO_PARTITION, Key, Peer, Registrations
from nsqsmart.embedded.serving.connections import Connections, Served, reader_of
from nsqsmart.names import Dialect, is_valid_name
from nsqsmart.wire.commands import MAGIC_V1

_MAX_PARTITION = 255
_WITH_PARTITION = 2
_MAX_BODY = 1024 * 1024
_FIELDS: dict[str, type] = {
    "broadcast_address": str,
    "tcp_port": int,
    "http_port": int,
    "version": str,
}


class _Refused(Exception):
    """The text of a fatal answer."""


class PeerSession(Served):
    """One nsqd's conversation with a lookup daemon."""

    def __init__(
        self,
        sock: socket.socket,
        peer: tuple[str, int],
        others: Connections,
        registrations: Registrations,
        dialect: Dialect,
        introduce: Callable[[], bytes],
    ) -> None:
        super().__init__(sock, others, f"peer-{peer[1]}")
        self._remote = f"{peer[0]}:{peer[1]}"
        self._registrations = registrations
        self._redesigned = dialect is Dialect.REDESIGNED
        self._introduce = introduce
        self._stream = reader_of(sock)
        self._peer: Peer | None = None

    def _serve(self) -> None:
        try:
            if self._read(4) == MAGIC_V1:
                while self._answer_line():
                    pass
            else:
                self._send(b"E_BAD_PROTOCOL")
        except (EOFError, OSError):
            pass
        finally:
            # The connection is gone, and with it what was registered.
            if self._peer is not None:
                self._registrations.leave(self._peer)
            self._stream.close()
            self._sock.close()

    def _answer_line(self) -> bool:
        """Carry out a line; whether the connection stays."""
        line = self._stream.readline(_MAX_BODY)
        if not line.endswith(b"\n"):
            raise EOFError
        if self._peer is not None:
            self._peer.seen_at = time.monotonic()
        try:
            self._send(self._execute(shown(line).split()))
        except _Refused as refused:
            self._send(str(refused).encode("utf-8", "surrogateescape"))
            return False
        return True

    def _send(self, data: bytes) -> None:
        self._sock.sendall(len(data).to_bytes(4) + data)

    def _read(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def _execute(self, words: list[str]) -> bytes:
        verb = words[0] if words else ""
        if verb == "PING":
            return b"OK"
        if verb == "IDENTIFY":
            return self._identify()
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

    def _identify(self) -> bytes:
        if self._peer is not None:
            raise _Refused("E_INVALID cannot IDENTIFY again")
        size = int.from_bytes(self._read(4))
        if size > _MAX_BODY:
            raise _Refused("E_BAD_BODY IDENTIFY failed to read body")
        try:
            info: dict[str, Any] = json.loads(self._read(size))
        except (ValueError, RecursionError) as error:
            raise _Refused("E_BAD_BODY IDENTIFY failed to decode JSON body") from error
        if not isinstance(info, dict) or not all(
            info.get(name) and isinstance(info[name], kind) for name, kind in _FIELDS.items()
        ):
            raise _Refused("E_BAD_BODY IDENTIFY missing fields")
        self._peer = Peer(self._remote, info)
        self._registrations.join(self._peer)
        return self._introduce()

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
