"""A whole cluster in this process, for tests, demonstrations and first steps."""

from __future__ import annotations

from typing import Any, NamedTuple, Self, Unpack

from nsqsmart.embedded.backends.original import OriginalBackend
from nsqsmart.embedded.backends.redesigned import RedesignedBackend
from nsqsmart.embedded.broker.log import RedesignedLog
from nsqsmart.embedded.broker.records import Record
from nsqsmart.embedded.cluster_options import (
    ClusterOptions,
    check_options,
    node_options,
    script_of,
)
from nsqsmart.embedded.commandlog import CommandLog
from nsqsmart.embedded.faults import FaultBook
from nsqsmart.embedded.nsqd.options import NsqdOptions
from nsqsmart.embedded.nsqd.server import Nsqd
from nsqsmart.embedded.nsqd.shard import Shard, TopicDescription
from nsqsmart.embedded.nsqlookupd.server import LookupdOptions, Nsqlookupd
from nsqsmart.embedded.serving.server import Scope
from nsqsmart.names import Dialect, check_channel, check_topic

Backend = OriginalBackend | RedesignedBackend

_MOVE_TIMEOUT = 30.0


class Stored(NamedTuple):
    """A message in a log; ``internal_id`` of an original message is its id as a number."""

    partition: int
    internal_id: int
    trace_id: int
    offset: int
    body: bytes
    nsqd: str = ""


class Cluster:
    """nsqds and nsqlookupds in this process, on 127.0.0.1.

    Use it as a context manager, or call :meth:`close`. Every method may be called from any
    thread, and returns when what it does is done.
    """

    def __init__(self, **options: Unpack[ClusterOptions]) -> None:
        check_options(options)
        self.dialect = Dialect(options.get("dialect", Dialect.REDESIGNED))
        self._options = options
        self._scope = Scope("nsqsmart-embedded", logging=options.get("log", True))
        self._scope.faults.dialect = self.dialect
        self._closed = False
        self.nsqds: list[Nsqd] = []
        """The nsqds; they stay in the list when they are killed."""
        self.lookupds: list[Nsqlookupd] = []
        """The lookup daemons."""
        try:
            self.nsqds += map(self._make_nsqd, range(options.get("nsqds", 1)))
            self.lookupds += map(self._make_lookupd, range(options.get("lookupds", 1)))
            self._backend = self._make_backend()
            self._backend.start()
        except BaseException:
            self.close()
            raise
        self._scope.move_leader = self._begin_move

    def _make_nsqd(self, number: int) -> Nsqd:
        shared = node_options(self._options)
        ports = self._options.get("tcp_ports", [])
        port = ports[number] if number < len(ports) else 0
        shared |= {
            "dialect": self.dialect,
            "node_id": number + 1,
            "tcp_address": ("127.0.0.1", port),
        }
        return Nsqd(NsqdOptions(**shared), self._scope)  # type: ignore[arg-type]

    def _make_lookupd(self, number: int) -> Nsqlookupd:
        ports = self._options.get("lookupd_ports", [])
        http = ("127.0.0.1", ports[number] if number < len(ports) else 0)
        options = LookupdOptions(dialect=self.dialect, http_address=http)
        return Nsqlookupd(options, self._scope)

    def _make_backend(self) -> Backend:
        options = self._options
        if self.dialect is Dialect.ORIGINAL:
            return OriginalBackend(self.nsqds, self.lookupds)
        script = script_of(options)
        backend = RedesignedBackend(self.nsqds, self.lookupds, self._scope, script)
        if options.get("auto_create", False):
            backend.create_on_use(options.get("partitions", 1), options.get("replicas", 1))
        return backend

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self.dialect} cluster {self.url}>"

    @property
    def url(self) -> str:
        """The address for clients; nsqds directly if there is no lookup daemon."""
        if not self.lookupds:
            return "nsq://" + ",".join(nsqd.name for nsqd in self.nsqds)
        return "nsq+lookupd://" + ",".join(lookupd.name for lookupd in self.lookupds)

    @property
    def faults(self) -> FaultBook:
        """Where faults are added."""
        return self._scope.faults

    @property
    def log(self) -> CommandLog:
        """Every command that was received; raises RuntimeError for a cluster with log=False."""
        if self._scope.log is None:
            raise RuntimeError("this cluster was made with log=False")
        return self._scope.log

    # ----------------------------------------------------------------------------------- topics

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replicas: int = 1,
        *,
        ordered: bool = False,
        extend_support: bool = False,
        multi_part: bool | None = None,
        disable_channel_auto_create: bool = False,
    ) -> None:
        """Make a topic; its partitions have leaders and take writes when this returns.

        With a ``create_delay`` they do so later, as after the answer of a real nsqlookupd.
        A redesigned node holds only one partition of a plain topic; *multi_part* None allows more
        where the nodes would not suffice. Raises ValueError with the server's text. On an original
        cluster every nsqd gets the topic, and anything but the name must be left alone.
        """
        meta = TopicDescription(
            name=check_topic(topic),
            partitions=partitions,
            replicas=replicas,
            ordered=ordered,
            extended=extend_support,
            channel_auto_create=not disable_channel_auto_create,
        )
        self._backend.create_topic(meta, multi_part=multi_part)

    def create_channel(self, topic: str, channel: str) -> None:
        """Make a channel on every partition (original: on every nsqd that has the topic)."""
        self._backend.create_channel(check_topic(topic), check_channel(channel))

    def stored(self, topic: str, partition: int | None = None) -> list[Stored]:
        """What is stored, in order, partition by partition."""
        found: list[Stored] = []
        for nsqd, shard in self._backend.shards(topic):
            if partition not in (None, shard.number):
                continue
            with shard.lock:
                log = shard.partition.log
                records = [record for record in log.records if record.index not in log.lost]
            found += [_stored(shard, nsqd, record) for record in records]
        return found

    # ----------------------------------------------------------------------------------- leaders

    def leader(self, topic: str, partition: int = 0) -> Nsqd:
        """The nsqd that leads; raises LookupError while there is none."""
        return self._backend.leader(topic, partition)

    def move_leader(self, topic: str, partition: int = 0, to: Nsqd | None = None) -> Nsqd:
        """Move the leader, to *to* or another in-sync replica; returns the new one.

        Writes are refused with NOT_WRITABLE for ``move_delay``, then consumers lose their
        connections, and the old node answers NOT_LEADER (protocol#leader-switch).
        """
        return self._backend.move_leader(topic, partition, to, _MOVE_TIMEOUT)

    def _begin_move(self, topic: str, partition: int) -> None:
        self._backend.move_leader(topic, partition, None, 0)

    def set_writable(self, topic: str, partition: int, writable: bool = True) -> None:  # noqa: FBT001, FBT002 - public, and read well by position
        """Let the leader refuse writes with NOT_WRITABLE, or take them again."""
        self._backend.set_writable(topic, partition, writable=writable)

    # ------------------------------------------------------------------------------------- nodes

    def kill(self, server: Nsqd | Nsqlookupd) -> None:
        """End a server as SIGKILL does: connections are reset, the ports refuse."""
        if isinstance(server, Nsqlookupd):
            server.stop()
            self._backend.lookupd_changed(server)
        else:
            self._backend.kill(server)

    def terminate(self, server: Nsqd | Nsqlookupd) -> None:
        """End a server as SIGTERM does: an nsqd hands over what it leads first."""
        if isinstance(server, Nsqlookupd):
            self.kill(server)
        else:
            self._backend.terminate(server)

    def hang(self, nsqd: Nsqd) -> None:
        """Stop an nsqd as SIGSTOP does: connections stay, and nothing is answered."""
        self._backend.hang(nsqd)

    def wake(self, nsqd: Nsqd) -> None:
        """Let a hung nsqd go on."""
        self._backend.wake(nsqd)

    def freeze(self, lookupd: Nsqlookupd) -> None:
        """Let a lookup daemon answer out of what it knows now, whatever happens to the cluster.

        Two daemons are out of step like that. Raises ValueError on an original cluster.
        """
        self._backend.freeze(lookupd, frozen=True)

    def thaw(self, lookupd: Nsqlookupd) -> None:
        """Let a frozen lookup daemon learn what has happened."""
        self._backend.freeze(lookupd, frozen=False)

    def restart(self, server: Nsqd | Nsqlookupd) -> None:
        """Start a server again, on its old ports."""
        if server.listening:
            raise ValueError(f"{server!r} is running")
        if isinstance(server, Nsqlookupd):
            server.listen()
            self._backend.lookupd_changed(server)
        else:
            self._backend.restart(server)

    def close(self) -> None:
        """End every server; twice does no harm."""
        if self._closed:
            return
        self._closed = True
        for lookupd in self.lookupds:
            lookupd.stop()
            lookupd.release_ports()
        for nsqd in self.nsqds:
            nsqd.begin_stop()
        for nsqd in self.nsqds:
            nsqd.stop(abruptly=False)
            nsqd.release_ports()
        self._scope.loop.close()


def _stored(shard: Shard[Any], nsqd: str, record: Record) -> Stored:
    if isinstance(shard.partition.log, RedesignedLog):
        internal, trace = int.from_bytes(record.id[:8]), int.from_bytes(record.id[8:])
    else:
        internal, trace = int(record.id, 16), 0
    return Stored(shard.number, internal, trace, record.offset, record.body, nsqd)
