"""What operators ask of a redesigned nsqd: single messages, positions, limits (protocol#http)."""

from __future__ import annotations

from math import inf
from typing import Any

from nsqsmart.embedded.broker.records import Record
from nsqsmart.embedded.broker.redesigned_channel import RedesignedChannel
from nsqsmart.embedded.gotext import GoError, atoi
from nsqsmart.embedded.nsqd.hosting import DEFAULT, RedesignedHosting, RedesignedShard
from nsqsmart.embedded.nsqd.node import NsqdNode
from nsqsmart.embedded.serving.arguments import set_log_level, topic_and_channel, topic_argument
from nsqsmart.embedded.serving.http import HttpError, HttpRoute, Request
from nsqsmart.wire.answers import NOT_LEADER, TOPIC_NOT_EXIST

_GET, _POST = ("GET",), ("POST",)
_HOURS = 22
_HOUR = 3600.0
_PARTITION_SHIFT = 50
_MAX_PARTITION = 1024
_END = "commit log end of file"
_RPC_STATS = (
    "RPCCalls",
    "RPCTime",
    "BytesWritten",
    "BytesRead",
    "ReadCalls",
    "ReadErrors",
    "WriteCalls",
    "WriteErrors",
    "DialCalls",
    "DialErrors",
    "AcceptCalls",
    "AcceptErrors",
)
_ERROR_STATS = (
    "WriteEpochError",
    "WriteNotLeaderError",
    "WriteQuorumError",
    "WriteBusyError",
    "RpcCheckFailed",
    "LeadershipError",
    "TopicCoordMissingError",
    "LocalErr",
)
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


class NsqdOperators(ChannelPaths):
    """The paths of operators."""

    def routes(self) -> dict[str, HttpRoute]:
        """All of them; the newer envelope only."""
        return {
            "/message/stats": HttpRoute(_GET, self.stats),
            "/message/get": HttpRoute(_GET, self.get),
            "/message/historystats": HttpRoute(_GET, self.history),
            "/message/trace/enable": HttpRoute(_POST, lambda _: None),
            "/message/trace/disable": HttpRoute(_POST, lambda _: None),
            "/channel/fixconfirmed": HttpRoute(_POST, self.fix_confirmed),
            "/channel/finishmemdelayed": HttpRoute(_POST, self.finish_delayed),
            "/channel/emptydelayed": HttpRoute(_POST, self.empty_delayed),
            "/channel/requeuedelayed": HttpRoute(_POST, self.requeue_delayed),
            "/channel/setclientlimit": HttpRoute(_POST, self.limit_clients),
            "/channel/ratelimit": HttpRoute(_POST, self.limit_rate),
            "/channel/skipZanTest": HttpRoute(
                _POST, lambda each: self.skip_tests(each, skipped=True)
            ),
            "/channel/unskipZanTest": HttpRoute(
                _POST, lambda each: self.skip_tests(each, skipped=False)
            ),
            "/coordinator/stats": HttpRoute(_GET, self.coordinator_stats),
            "/serverstats": HttpRoute(_GET, self.server_stats),
            "/loglevel/set": HttpRoute(
                _POST, lambda request: set_log_level(request.without_blanks)
            ),
        }

    # --------------------------------------------------------------------------------- messages

    def stats(self, request: Request) -> str:
        """Positions of a channel, as text for people."""
        shard, name = self._begin(request)
        channel = shard.partition.channels.get(name)
        if channel is None:
            return f"topic {shard.meta.name} channel {name} \n\n"
        with shard.lock:
            log, confirmed = shard.partition.log, channel.confirmed.position
            flight, deferred = channel.in_flight_count, len(channel.deferred)
            places = [
                _place(shard, index) for index in (log.end, channel.backlog.cursor, confirmed)
            ]
            done, again = len(channel.confirmed.above), len(channel.backlog.again)
        end, read, confirm = places
        return (
            f"topic {shard.meta.name} channel {name} \n"
            f"inflight {flight}, req {again}, 0, 0, deferred: {deferred} , 0, \n\n"
            f"channel end : {end},current read:{read}, current confirm {confirm}, "
            f"confirmed {done} messages: \n\n"
        )

    def get(self, request: Request) -> dict[str, Any]:
        """One message by its id, its number in the log, or its offset."""
        query = request.query
        mode = query.get("search_mode", "")
        try:
            wanted = atoi(query.get("search_pos", "").encode(), "ParseInt")
            number = wanted >> _PARTITION_SHIFT
            if mode != "id":
                number = atoi(query.get("partition", "").encode())
        except GoError as error:
            raise HttpError(400, str(error)) from error
        if number >= _MAX_PARTITION:
            raise HttpError(400, "invalid message id")
        shard = self._hosting.find(query.get("topic", ""), max(number, 0))
        if shard is None:
            raise HttpError(400, "topic does not exist")
        if mode not in ("id", "count", "virtual_offset"):
            raise HttpError(400, "search mode should be one of id/count/virtual_offset")
        if not self._hosting.coordinated:
            # Only a coordinator can search; the real one stumbles here.
            raise HttpError(500, "INTERNAL_ERROR")
        with shard.lock:
            record = _search(shard, mode, wanted)
        if record is None:
            raise HttpError(404, _END)
        with_ext = query.get("needext") == "true" and record.ext is not None
        return {
            "id": int.from_bytes(record.id[:8]),
            "trace_id": int.from_bytes(record.id[8:]),
            "body": record.body.decode("utf-8", "replace"),
            "timestamp": record.timestamp,
            "attempts": 0,
            "offset": record.offset,
            "queue_cnt_index": record.index + 1,
            "ext": record.ext.data.decode() if with_ext and record.ext is not None else "",
        }

    def history(self, request: Request) -> dict[str, Any]:
        """Bytes published in each hour but the newest two; this server is younger than that."""
        topic, text = request.query.get("topic", ""), request.query.get("partition", "")
        if not topic and not text:
            listed = [
                {
                    "topic_name": shard.meta.name,
                    "topic_partition": str(shard.number),
                    "hourly_pub_size": 0,
                }
                for shard in self._hosting.local()
                if shard.leader is self._node
            ]
            return {"node_hourly_pub_size_stats": listed or None}
        if topic and text and not text.isdigit():
            raise HttpError(400, "INVALID_REQUEST")
        if self._hosting.find(topic, int(text) if text.isdigit() else 0) is None:
            raise HttpError(404, TOPIC_NOT_EXIST)
        return {"hourly_pub_size": [0] * _HOURS}

    def server_stats(self, request: Request) -> dict[str, Any]:  # noqa: ARG002 - the interface has it
        """What there is to say of the whole process."""
        version, started = self._node.options.version, self._node.started
        return {
            "version": version,
            "health": "OK",
            "start_time": started,
            "server_pub_failed": 0,
        }

    def coordinator_stats(self, request: Request) -> dict[str, Any]:
        """How replication goes: here nothing ever fails that is counted.

        Of a partition that is named, and is here, the members that are in sync.
        """
        if not self._hosting.coordinated:
            raise HttpError(500, "Coordinator is disabled.")
        return {
            "rpc_stats": dict.fromkeys(_RPC_STATS, 0),
            "ErrStats": {**dict.fromkeys(_ERROR_STATS, 0), "OtherCoordErrs": {}},
            "topic_coord_stats": self._coordinated(request),
        }

    def _coordinated(self, request: Request) -> list[dict[str, Any]]:
        topic, number = request.query.get("topic", ""), request.query.get("partition", "")
        if not topic or not number.isdecimal():
            return []
        members = self._hosting.in_sync(topic, int(number))
        if not members:
            return []
        stats = [{"hostname": "", "node_id": each} for each in members]
        return [
            {
                "node": self._node.distributed_id,
                "name": topic,
                "partition": int(number),
                "isr_stats": stats,
                "catchup_stats": [],
            }
        ]

    # --------------------------------------------------------------------------------- channels

    def fix_confirmed(self, request: Request) -> None:
        """Read on from where the channel is confirmed; here it always does."""
        self._channel(request)

    def finish_delayed(self, request: Request) -> None:
        """What was put off for a short time is done with."""
        shard, channel = self._channel(request)
        shard.run(lambda _, now: self._drop(channel, now, now + self._to_end))

    def empty_delayed(self, request: Request) -> None:
        """What was put off for so long that it went to disk is done with."""
        shard, channel = self._channel(request)
        shard.run(lambda _, now: self._drop(channel, now, inf) if self._to_end else [])

    @property
    def _to_end(self) -> float:
        return self._node.options.requeue_to_end

    @staticmethod
    def _drop(channel: RedesignedChannel, now: float, until: float) -> Any:
        for record in channel.deferred.take_due(until):
            channel.confirmed.add(record.index)
        return channel.pump(now)

    def requeue_delayed(self, request: Request) -> None:
        """What would be due within *offset* hours is due now; a bad number means one."""
        shard, channel = self._channel(request)
        text = request.query.get("offset", "")
        hours = int(text) if text.isdigit() else 1

        def release(_: object, now: float) -> Any:
            channel.release(now + hours * _HOUR)
            return channel.pump(now)

        shard.run(release)

    def limit_clients(self, request: Request) -> None:
        """How many messages clients may have in flight whose address begins so."""
        shard, channel = self._channel(request, leading=False)
        most = _number(request, "ready")
        prefix = request.query.get("client_prefix", "")
        with shard.lock:
            channel.limit_clients(prefix, most)

    def limit_rate(self, request: Request) -> None:
        """The bandwidth of a channel; judged, and without effect: nothing here is that slow."""
        self._channel(request, leading=False)
        _number(request, "ratekilobytes")

    def skip_tests(self, request: Request, *, skipped: bool) -> None:
        """Pass over messages whose header says that they are tests."""
        shard, name = self._begin(request)
        if not shard.meta.extended:
            raise HttpError(400, "INVALID_REQUEST")
        channel = shard.partition.channels.get(name)
        if channel is None:
            raise HttpError(404, "CHANNEL_NOT_FOUND")
        with shard.lock:
            channel.tests_skipped = skipped


def _number(request: Request, name: str) -> int:
    try:
        return atoi(request.query.get(name, "").encode())
    except GoError as error:
        raise HttpError(400, "INVALID_OPTION") from error


def _place(shard: RedesignedShard, index: int) -> str:
    """A position as the real one prints it: file, place in it, offset, number of messages."""
    log = shard.partition.log
    found = log.records[max(index - log.base, 0) :][:1]
    offset = found[0].offset if found else log.next_offset
    return f"&{{{{{{0 {offset}}} {offset}}} {index}}}"


def _search(shard: RedesignedShard, mode: str, wanted: int) -> Record | None:
    """The record that is meant; called with the lock."""
    log = shard.partition.log
    index = wanted
    if mode == "virtual_offset":
        index = log.index_at_offset(wanted)
    elif mode == "id":
        index = log.index_of_key(max(wanted, 0).to_bytes(8))
    found = log.records[max(index - log.base, 0) :][:1]
    return found[0] if found else None
