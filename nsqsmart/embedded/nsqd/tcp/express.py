"""The short way for PUB: whole commands at the head of what was just received.

Publishing one message at a time is what benchmarks do most; this costs a quarter of the careful
way. Whatever is unusual about a command (a name, a size, a refusal to come) is left to that way,
byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nsqsmart.embedded.broker.log import NewMessage
from nsqsmart.embedded.nsqd.refusals import CommandRefused
from nsqsmart.embedded.nsqd.shard import Shard
from nsqsmart.embedded.nsqd.tcp.connection import ClientConnection
from nsqsmart.wire.frames import OK_FRAME

_VERB = b"PUB "
_LONGEST_LINE = 160
_HELD_AT_MOST = 16 * 1024

Find = Callable[[bytes], Shard[Any] | None]
"""The partition that a line without its verb means; None for the careful way."""


class Express:
    """Takes PUBs off the head of a piece of the stream."""

    def __init__(self, connection: ClientConnection, find: Find) -> None:
        self._connection = connection
        self._node = connection.node
        self._find = find
        self._limit = connection.node.options.max_msg_size
        self._guarded = self._node.options.tls_required or bool(self._node.options.auth_addresses)
        self._held = b""

    def take(self, received: bytes) -> bytes:
        """Carry out the PUBs at the head of the stream; what is left for the careful way.

        The beginning of another PUB is held until the rest of it comes.
        """
        data = self._held + received if self._held else received
        self._held = b""
        node = self._node
        if node.log is not None or node.faults.armed or node.exiting or self._guarded:
            return data
        position, length = 0, len(data)
        shard: Shard[Any] | None = None
        route = b""
        entries: list[NewMessage] = []
        while data.startswith(_VERB, position):
            newline = data.find(b"\n", position, position + _LONGEST_LINE)
            start = newline + 5
            if newline < 0 or start > length:
                self._hold(data[position:], whole=length - position > _LONGEST_LINE)
                break
            size = int.from_bytes(data[newline + 1 : start])
            line = data[position + 4 : newline]
            if line != route or shard is None:
                self._store(shard, entries)
                entries, route, shard = [], line, self._find(line)
            if shard is None or not 0 < size <= self._limit:
                break
            end = start + size
            if end > length:
                self._hold(data[position:], whole=size > _HELD_AT_MOST)
                break
            entries.append((data[start:end], 0, None))
            position = end
        self._store(shard, entries)
        return b"" if self._held else data[position:]

    def _hold(self, rest: bytes, *, whole: bool) -> None:
        """Keep the beginning of a PUB, unless it is too large to be kept piece by piece."""
        self._held = b"" if whole else rest

    def rest(self) -> bytes:
        """What was held, at the end of the stream: the careful way knows what to say."""
        held, self._held = self._held, b""
        return held

    def _store(self, shard: Shard[Any] | None, entries: list[NewMessage]) -> None:
        if shard is None or not entries:
            return
        connection = self._connection
        try:
            _, woken = shard.publish(self._node, entries)
        except CommandRefused as refused:
            for _ in entries:
                connection.fail(refused.encode())
            return
        connection.published[shard.meta.name] += len(entries)
        connection.outbox.pending.extend([OK_FRAME] * len(entries))
        connection.line_done()
        if woken:
            connection.dirty.update(woken)
