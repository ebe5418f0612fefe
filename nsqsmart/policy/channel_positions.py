"""Where a channel stands in a partition's log, and whether it skipped (protocol#new-leader).

When a partition's leader changes, a redesigned cluster can forget a channel on which no message
was finished: the new leader makes the channel anew, at the end of the log.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from nsqsmart.policy.answers.documents import count_of, dicts_of, object_of

REWIND: Final = "rewind"
WARN: Final = "warn"
AUTO: Final = "auto"


class ChannelPosition(NamedTuple):
    """What the leader says: bytes in the log, messages, and connected consumers."""

    start: int
    """Where the log begins; what was before it is cleaned away."""
    end: int
    confirmed: int
    """Everything before it counts as finished."""
    unfinished: int
    clients: int


class Remembered(NamedTuple):
    """What a consumer knows of a partition whose connection it had lost.

    ``lowest`` is the offset of the first message that it has received and not finished, None where
    messages came without offsets; ``unfinished`` is how many those were. ``finished`` tells
    whether it ever finished one; ``rewound`` whether it has set the channel back before.
    """

    lowest: int | None
    unfinished: int
    finished: bool
    rewound: bool


class Finding(Enum):
    """What to do about a channel."""

    FINE = "fine"
    REWIND = "rewind"
    TELL = "tell"


def parse_position(
    status: int, body: bytes, partition: int, channel: str
) -> ChannelPosition | None:
    """Read an nsqd's answer to ``/stats``; None if it does not know the channel.

    Raises :class:`~nsqsmart.errors.DiscoveryError` if it is not an answer of an nsqd.
    """
    data = object_of(status, body, "stats")
    for topic in dicts_of(data.get("topics")):
        if topic.get("topic_partition") != str(partition):
            continue
        for found in dicts_of(topic.get("channels")):
            if found.get("channel_name") == channel:
                end = count_of(topic.get("depth"))
                return ChannelPosition(
                    count_of(topic.get("backend_start")),
                    end,
                    max(0, end - count_of(found.get("depth_size"))),
                    count_of(found.get("depth")),
                    count_of(found.get("client_num")),
                )
    return None


def judge_position(
    known: Remembered, position: ChannelPosition, *, ordered: bool, choice: str
) -> Finding:
    """Compare what a new connection finds with what was unfinished on the one before.

    *choice* is ``on_channel_lost``: "auto" sets back ordered channels. It does so only where no
    other consumer can have finished the messages, or would get them twice: this process has
    finished none of the partition, and no other consumer is connected.
    """
    others = position.clients > 1
    if known.lowest is None:
        # Without offsets there is a sign only where nothing at all is left of them.
        lost = known.unfinished > 0 and position.unfinished == 0 and not others
        return Finding.TELL if lost else Finding.FINE
    if position.confirmed <= known.lowest:
        return Finding.FINE
    if known.finished and (ordered or others):
        # A channel with a FIN is not forgotten: other consumers have finished them meanwhile. Of an
        # unordered one the first FINs may not have reached the new leader.
        return Finding.FINE
    rewinds = choice == REWIND or (choice == AUTO and ordered)
    if rewinds and not (known.finished or known.rewound or others):
        return Finding.REWIND
    return Finding.TELL
