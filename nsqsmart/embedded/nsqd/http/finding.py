"""Which partition and which channel a request to a redesigned nsqd means (protocol#http)."""

from __future__ import annotations

from nsqsmart.embedded.broker.redesigned_channel import RedesignedChannel
from nsqsmart.embedded.gotext import GoError, atoi
from nsqsmart.embedded.nsqd.hosting import DEFAULT, RedesignedHosting, RedesignedShard
from nsqsmart.embedded.nsqd.node import NsqdNode
from nsqsmart.embedded.serving.arguments import topic_and_channel, topic_argument
from nsqsmart.embedded.serving.http import HttpError, Request
from nsqsmart.wire.answers import NOT_LEADER, TOPIC_NOT_EXIST

_NOT_FOUND = 404


def find_shard(hosting: RedesignedHosting, request: Request) -> RedesignedShard:
    """Topic and partition, the default one if none is named; raises :class:`HttpError`."""
    topic, partition = topic_argument(request.without_blanks), DEFAULT
    if text := request.query.get("partition"):
        try:
            partition = atoi(text.encode())
        except GoError as error:
            raise HttpError(400, str(error)) from error
    shard = hosting.find(topic, partition)
    if shard is None:
        raise HttpError(404, TOPIC_NOT_EXIST)
    return shard


def find_or_not_exist(hosting: RedesignedHosting, request: Request) -> RedesignedShard:
    """Find the partition of a single message; any error is answered as "not found"."""
    try:
        return find_shard(hosting, request)
    except HttpError as error:
        raise HttpError(404, TOPIC_NOT_EXIST) from error


class ChannelPaths:
    """What the paths that are about a channel have in common."""

    def __init__(self, node: NsqdNode, hosting: RedesignedHosting) -> None:
        self._node = node
        self._hosting = hosting

    def _begin(self, request: Request) -> tuple[RedesignedShard, str]:
        # A bad partition is noticed before a bad channel.
        shard: RedesignedShard | None = None
        try:
            shard = find_shard(self._hosting, request)
        except HttpError as error:
            if error.status != _NOT_FOUND:
                raise
        _, name = topic_and_channel(request.without_blanks)
        if shard is None:
            raise HttpError(404, TOPIC_NOT_EXIST)
        return shard, name

    def _channel(
        self, request: Request, *, leading: bool = True
    ) -> tuple[RedesignedShard, RedesignedChannel]:
        shard, name = self._begin(request)
        channel = shard.partition.channels.get(name)
        if not isinstance(channel, RedesignedChannel):
            raise HttpError(404, "CHANNEL_NOT_FOUND")
        if leading:
            self._check_leader(shard)
        return shard, channel

    def _check_leader(self, shard: RedesignedShard) -> None:
        if shard.leader is not self._node:
            raise HttpError(400, NOT_LEADER)
