"""The Admin: what there is, what is in it, and what an operator changes."""

from __future__ import annotations

from typing import Unpack

from nsqsmart.client.admin import operations
from nsqsmart.client.admin.probe import HttpProbe, Probe, Wanted, probe_http, probe_nsqd
from nsqsmart.client.admin.requests import AdminCall, LoneNsqds, read_http_addresses
from nsqsmart.client.shared.discovery import open_endpoint, prepare_endpoint
from nsqsmart.config import AdminConfig, AdminOptions, resolve
from nsqsmart.errors import ConfigError
from nsqsmart.names import Address, check_channel, check_partition, check_topic
from nsqsmart.net.handshake import make_greeting
from nsqsmart.policy.answers.nodes import NodeInfo, describe
from nsqsmart.policy.answers.operations import TopicSettings
from nsqsmart.policy.answers.stats import Replicas, Stats
from nsqsmart.policy.positions import Position, position_text
from nsqsmart.policy.topology import Topology

_NSQD_PORT = 4150
_LOOKUPD_PORT = 4161
_MAX_PARTITIONS = 254
_MAX_REPLICAS = 5


class Admin:
    """Looks at a cluster and changes it; blocking, without a thread or a kept connection.

    Every call asks the lookups anew. Share one between threads, and over a fork. What changes
    something waits for leaders that are missing or about to move, at most ``admin_timeout``
    (150 s): a redesigned cluster takes up to two minutes to open a new topic.

    Args:
        address: ``nsq+lookupd://host:4161,...`` or ``nsq+embedded://NAME``. With ``nsq://`` only
            :meth:`probe`, :meth:`nodes` and :meth:`topology` work without the option
            ``nsqd_http_addresses``, as ``"host:4151"``: an nsqd does not tell where its HTTP
            interface is. What changes something takes original nsqds alone then.
            Default: the environment variable ``NSQSMART_URL``.
        config: an :class:`~nsqsmart.config.AdminConfig` instead of the defaults.
        **options: any option by its name, as ``admin_timeout=10`` (seconds) or ``"250ms"``.

    Every method raises, besides what it says:

    Raises:
        TypeError, ConfigError: an argument, option or address cannot be used; nothing was sent.
        DiscoveryError: no nsqlookupd answers.
        TopicNotExist: no lookup or nsqd knows the topic that is to be changed.
        NotSupported: the cluster's dialect cannot do it; nothing was changed.
        AdminError: it failed on some servers, or all; ``done`` and ``failed`` say on which.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        config: AdminConfig | None = None,
        **options: Unpack[AdminOptions],
    ) -> None:
        self._endpoint, self._config = resolve(AdminConfig, address, options, config=config)
        self._http = read_http_addresses(self._endpoint, self._config)
        prepare_endpoint(self._endpoint)
        self._greeting = make_greeting(self._config)

    def __repr__(self) -> str:
        return f"<Admin {self._endpoint}>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an Admin cannot be pickled: make it inside the function that uses it")

    # ----------------------------------------------------------------------------- what there is

    def topology(self, topic: str) -> Topology:
        """The leader of each partition of *topic*, or the original nsqds that have it.

        ``state`` is UNKNOWN where no lookup knows the topic.
        """
        check_topic(topic)
        return AdminCall(open_endpoint(self._endpoint), self._config).topology(topic)

    def topics(self) -> list[str]:
        """The names of all topics that a lookup knows, sorted.

        A redesigned one knows a new topic once a partition of it has a leader.
        """
        return self._look("topics()").topics()

    def nodes(self) -> list[NodeInfo]:
        """Every nsqd that a lookup lists, sorted by address.

        With ``nsq://`` it asks the nsqds of the address themselves.
        """
        endpoint = open_endpoint(self._endpoint)
        if endpoint.discovers or self._http:
            return [describe(listed) for listed in self._look("nodes()").nodes()]
        probes = [probe_nsqd(address, self._greeting) for address in endpoint.addresses]
        return [NodeInfo(each.nsqd, version=each.version, dialect=each.dialect) for each in probes]

    def stats(self, topic: str | None = None, channel: str | None = None) -> Stats:
        """Depths and counts from every nsqd, in one shape for both dialects.

        There is one entry for each partition, or for each original nsqd that has the topic. An
        nsqd that does not answer in 5 s (``response_timeout``, if given) is named in
        ``unreachable``. *channel* leaves out what does not have it.
        """
        if topic is not None:
            check_topic(topic)
        if channel is not None:
            check_channel(channel)
        return self._look("stats()").stats(topic, channel)

    def replicas(self, topic: str) -> list[Replicas]:
        """How many nodes have all of each partition of *topic*, sorted by partition.

        Asks the leader of each. Empty on an original cluster, which has no replicas. Raises
        TopicNotExist for a topic that no lookup knows.
        """
        check_topic(topic)
        return self._look("replicas()").replicas(topic)

    def probe(self, nsqd: str, topic: str | None = None, partition: int | None = None) -> Probe:
        """Try to connect to *nsqd*, ``"host:port"`` as :meth:`nodes` names it, as a client does.

        With a *topic* that is there, and its *partition* if it has them, the step ``publish`` asks
        whether it takes messages of this client; nothing is stored.

        Raises nothing for what the nsqd does: ``steps`` says how far it went, and in what time.
        """
        if not isinstance(nsqd, str):
            raise TypeError(f"nsqd must be a str, not {type(nsqd).__name__}")
        if partition is not None:
            check_partition(partition)
        wanted = None if topic is None else Wanted(check_topic(topic), partition)
        return probe_nsqd(Address.parse(nsqd, _NSQD_PORT), self._greeting, wanted)

    def probe_http(self, server: str) -> HttpProbe:
        """Ask what speaks HTTP at *server*, ``"host:port"``: an nsqlookupd, an nsqd, or nothing.

        Raises nothing for what the server does. Each question has ``lookupd_request_timeout``.
        """
        if not isinstance(server, str):
            raise TypeError(f"server must be a str, not {type(server).__name__}")
        patience = self._config.lookupd_request_timeout
        return probe_http(Address.parse(server, _LOOKUPD_PORT), patience)

    # ------------------------------------------------------------------------------------ topics

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replicas: int = 1,
        ordered: bool = False,  # noqa: FBT001, FBT002 - public, and read well by position
        extend_support: bool = False,  # noqa: FBT001, FBT002 - public, and read well by position
    ) -> None:
        """Make *topic*; fine if it is there with the same settings.

        On a redesigned cluster it takes messages once it has leaders, up to two minutes later,
        and a channel: :meth:`create_channel` waits for that. On an original one every nsqd gets
        it, and there are no settings.

        Args:
            topic: 1 to 64 characters of letters, digits, ``.``, ``_`` and ``-``.
            partitions: 1 to 254.
            replicas: copies of each partition, 1 to 5, on so many nsqds.
            ordered: consumed in order, one message of a partition at a time.
            extend_support: messages may have headers.
        """
        settings = TopicSettings(
            check_topic(topic),
            _check_count("partitions", partitions, _MAX_PARTITIONS),
            _check_count("replicas", replicas, _MAX_REPLICAS),
            _check_flag("ordered", ordered),
            _check_flag("extend_support", extend_support),
        )
        operations.create_topic(self._call("create_topic()"), settings)

    def delete_topic(self, topic: str) -> None:
        """Delete *topic* with its channels and messages, everywhere; consumers lose it."""
        operations.delete_topic(self._call("delete_topic()"), check_topic(topic))

    def pause_topic(self, topic: str) -> None:
        """Let *topic* take messages and pass none on. Original nsqds only."""
        self._change_topic("pause", topic)

    def unpause_topic(self, topic: str) -> None:
        """Let *topic* pass messages on again. Original nsqds only."""
        self._change_topic("unpause", topic)

    def empty_topic(self, topic: str) -> None:
        """Drop what no channel of *topic* has taken yet. Original nsqds only."""
        self._change_topic("empty", topic)

    # ---------------------------------------------------------------------------------- channels

    def create_channel(self, topic: str, channel: str) -> None:
        """Make *channel* on every nsqd that has *topic*, or every partition; fine if it is there.

        On a redesigned cluster it begins at the end: it gets what is published from now on.
        """
        check_topic(topic)
        operations.create_channel(self._call("create_channel()"), topic, check_channel(channel))

    def delete_channel(self, topic: str, channel: str) -> None:
        """Delete *channel* with its messages, everywhere; fine if it is not there."""
        check_topic(topic)
        operations.delete_channel(self._call("delete_channel()"), topic, check_channel(channel))

    def pause_channel(self, topic: str, channel: str) -> None:
        """Let *channel* deliver nothing, wherever it is."""
        self._change_channel("pause", topic, channel)

    def unpause_channel(self, topic: str, channel: str) -> None:
        """Let *channel* deliver again."""
        self._change_channel("unpause", topic, channel)

    def empty_channel(self, topic: str, channel: str) -> None:
        """Drop what waits in *channel*, wherever it is.

        A redesigned nsqd may still deliver one message that it had read before.
        """
        self._change_channel("empty", topic, channel)

    def set_offset(self, topic: str, channel: str, partition: int, position: Position) -> None:
        """Let *channel* go on at *position* of one partition's log. Redesigned nsqds only.

        It counts for consumers that are connected, too. One message that nsqd had read before may
        still come. In an empty partition there is nothing to choose from.

        Args:
            topic: its name.
            channel: one that is there.
            partition: 0 to 1023.
            position: an offset in bytes (``Message.offset``, ``Receipt.offset``), ``"head"`` (or
                ``"start"``), ``"tail"`` (or ``"end"``), a datetime with a time zone (the first
                message of that second or later), or as the server writes it:
                ``"virtual_queue:0"``, ``"timestamp:0"``, ``"msgcount:1"``.
        """
        check_topic(topic)
        check_channel(channel)
        number, text = check_partition(partition), position_text(position)
        operations.set_offset(self._call("set_offset()"), topic, channel, number, text)

    def set_order(self, topic: str, channel: str, on: bool) -> None:  # noqa: FBT001 - public, and read well by position
        """Mark *channel* as consumed in order, or no longer. Redesigned nsqds only.

        To switch it off ends the connections of its consumers.
        """
        check_topic(topic)
        check_channel(channel)
        ordered = _check_flag("on", on)
        operations.set_order(self._call("set_order()"), topic, channel, on=ordered)

    def _change_topic(self, verb: str, topic: str) -> None:
        operations.change_topic(self._call(f"{verb}_topic()"), verb, check_topic(topic))

    def _change_channel(self, verb: str, topic: str, channel: str) -> None:
        check_topic(topic)
        check_channel(channel)
        operations.change_channel(self._call(f"{verb}_channel()"), verb, topic, channel)

    def _call(self, method: str) -> AdminCall:
        """Make the call object of a method that changes something."""
        call = self._look(method)
        call.check_lone(method)
        return call

    def _look(self, method: str) -> AdminCall:
        endpoint = open_endpoint(self._endpoint)
        if endpoint.discovers:
            return AdminCall(endpoint, self._config)
        if not self._http:
            raise ConfigError(
                f"{method} needs the HTTP addresses of the nsqds, which {endpoint} does not tell: "
                "use nsq+lookupd://HOST:4161, or give nsqd_http_addresses=HOST:4151"
            )
        lone = LoneNsqds(list(zip(endpoint.addresses, self._http, strict=True)))
        return AdminCall(endpoint, self._config, lone)


def _check_count(what: str, count: object, most: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{what} must be an int, not {type(count).__name__}")
    if not 1 <= count <= most:
        raise ConfigError(f"{what} {count} is not between 1 and {most}")
    return count


def _check_flag(what: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{what} must be True or False, not {type(value).__name__}")
    return value
