"""The read path of a subscribed connection: bytes to messages, one unpack each.

Consuming spends most of its time here, so frames and message heads are read together; every
other frame takes the slow branch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from nsqsmart.wire.frames import DEFAULT_MAX_FRAME_SIZE, MESSAGE, Frame, Tail, cut_frame
from nsqsmart.wire.messages import PLAIN, MessageLayout, RawMessage, decode_message

T = TypeVar("T")

_WHOLE_HEAD = struct.Struct(">IIQH16s")
_WHOLE_HEAD_SIZE = _WHOLE_HEAD.size


class DeliveryDecoder(Generic[T]):
    """Cuts a subscribed connection's stream into messages and other frames.

    *arrive* is called before messages are made of what was fed; *make_plain* builds a message from
    what it gave and (timestamp, attempts, id, body); *make* from that and a :class:`RawMessage`,
    for every layout but the plain one.
    """

    __slots__ = ("_arrive", "_layout", "_make", "_make_plain", "_plain", "tail")

    def __init__(
        self,
        layout: MessageLayout,
        arrive: Callable[[], Any],
        make_plain: Callable[[Any, int, int, bytes, bytes], T],
        make: Callable[[Any, RawMessage], T],
        max_frame_size: int = DEFAULT_MAX_FRAME_SIZE,
    ) -> None:
        self._layout = layout
        self._arrive = arrive
        self._make_plain = make_plain
        self._make = make
        self._plain = layout == PLAIN
        self.tail = Tail(max_frame_size)
        """What came of the frame under way, and how much of it is missing."""

    def feed(self, data: bytes) -> tuple[list[T], list[Frame]]:
        """The messages and the other frames that *data* completes, each in order."""
        stream = self.tail.join(data) if self.tail.size else data
        if stream is None:
            return [], []
        return self._feed_plain(stream) if self._plain else self._feed_layout(stream)

    def _feed_plain(self, stream: bytes) -> tuple[list[T], list[Frame]]:
        messages: list[T] = []
        others: list[Frame] = []
        position, length = 0, len(stream)
        limit = self.tail.max_frame_size
        arrival, make, unpack = self._arrive(), self._make_plain, _WHOLE_HEAD.unpack_from
        while length - position >= _WHOLE_HEAD_SIZE:
            size, frame_type, timestamp, attempts, message_id = unpack(stream, position)
            if frame_type != MESSAGE or size > limit or size < _WHOLE_HEAD_SIZE - 4:
                # Not a message, or an illegal one: the careful way decides.
                frame, position = self._cut(stream, position)
                if frame is None:
                    break
                others.append(frame)
                continue
            end = position + 4 + size
            if end > length:
                break
            body = stream[position + _WHOLE_HEAD_SIZE : end]
            messages.append(make(arrival, timestamp, attempts, message_id, body))
            position = end
        if position < length:
            # An OK or a heartbeat is shorter than the head of a message, and may still be whole.
            position = self._cut_short(stream, position, others)
            self.tail.keep(stream[position:])
        return messages, others

    def _cut_short(self, stream: bytes, position: int, others: list[Frame]) -> int:
        while True:
            frame, position = self._cut(stream, position)
            if frame is None:
                return position
            others.append(frame)

    def _feed_layout(self, stream: bytes) -> tuple[list[T], list[Frame]]:
        messages: list[T] = []
        others: list[Frame] = []
        arrival, position = self._arrive(), 0
        while True:
            frame, position = self._cut(stream, position)
            if frame is None:
                break
            if frame.type == MESSAGE:
                messages.append(self._make(arrival, decode_message(frame.data, self._layout)))
            else:
                others.append(frame)
        self.tail.keep(stream[position:])
        return messages, others

    def _cut(self, stream: bytes, position: int) -> tuple[Frame | None, int]:
        return cut_frame(stream, position, self.tail.max_frame_size, _WHOLE_HEAD_SIZE - 4)
