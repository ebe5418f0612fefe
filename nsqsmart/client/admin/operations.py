"""What an operator may change, in either dialect: which servers get which request."""

from __future__ import annotations

from nsqsmart.client.admin.requests import AdminCall, conclude, unknown
from nsqsmart.errors import AdminError, ConfigError, NotSupported
from nsqsmart.policy.answers.operations import (
    Answer,
    Operation,
    TopicSettings,
    Verdict,
    describe_topic,
    relevant,
)
from nsqsmart.policy.topology import Topology


def create_topic(call: AdminCall, settings: TopicSettings) -> None:
    """Original: on every nsqd, and in the lookups. Redesigned: by the leading lookup."""
    topic, what = settings.topic, f"create topic {settings.topic!r}"
    if call.is_original():
        if settings.beyond_original:
            raise NotSupported(
                f"an original NSQ has topics without {', '.join(settings.beyond_original)}",
                hint="create it by its name alone",
            )
        operation = Operation(what, "/topic/create", (("topic", topic),))
        answers = call.at_nsqds(operation, call.nodes(), topic)
        conclude(operation, answers + call.at_lookups(operation))
        return
    operation = Operation(what, "/topic/create", settings.query)
    answer = call.at_leading_lookup(operation)
    if answer.verdict is Verdict.EXISTS:
        _check_existing(call, settings)
    else:
        conclude(operation, [answer])


def _check_existing(call: AdminCall, settings: TopicSettings) -> None:
    """The server compares more than the request can say."""
    meta = call.topology(settings.topic).meta
    if not settings.is_met_by(meta):
        raise AdminError(
            f"topic {settings.topic!r} is there already, with other settings: "
            f"{describe_topic(meta)}"
        )


def delete_topic(call: AdminCall, topic: str) -> None:
    """Original: in the lookups first, so that none leads a client to an nsqd that makes it anew."""
    query = (("topic", topic),)
    operation = Operation(f"delete topic {topic!r}", "/topic/delete", query, deletes=True)
    if call.is_original():
        known, nodes = topic in call.topics(), call.nodes()
        answers = call.at_lookups(operation)
        held = relevant(call.at_nsqds(operation, nodes, topic))
        if not known and not held:
            raise unknown(topic)
        conclude(operation, answers + held)
        return
    every = ("partition", "**")
    answer = call.at_leading_lookup(operation._replace(query=(*query, every)))
    if answer.verdict is Verdict.NO_TOPIC:
        raise unknown(topic)
    conclude(operation, [answer])


def change_topic(call: AdminCall, verb: str, topic: str) -> None:
    """Pause, unpause or empty a topic: something only original nsqds do."""
    operation = Operation(f"{verb} topic {topic!r}", f"/topic/{verb}", (("topic", topic),))
    if not call.is_original():
        raise NotSupported(
            f"a redesigned nsqd cannot {verb} a topic", hint=f"{verb} its channels instead"
        )
    conclude(operation, _at_holders(call, operation, topic))


def create_channel(call: AdminCall, topic: str, channel: str) -> None:
    """On every nsqd or partition; the lookups too, where they have a say."""
    operation = _on_channel("create", topic, channel)
    topology = call.topology(topic)
    if not topology.redesigned:
        held = relevant(call.at_nsqds(operation, call.nodes(), topic))
        # A topic that only lookups know yet gets its channels from them.
        if not held and topic not in call.topics():
            raise unknown(topic)
        conclude(operation, held + call.at_lookups(operation))
    else:
        _at_cluster(call, operation, topology)


def delete_channel(call: AdminCall, topic: str, channel: str) -> None:
    """From every nsqd or partition; the lookups too, where they have a say."""
    operation = _on_channel("delete", topic, channel)._replace(deletes=True)
    topology = call.topology(topic)
    if not topology.redesigned:
        nodes = call.nodes()
        answers = call.at_lookups(operation)
        held = relevant(call.at_nsqds(operation, nodes, topic))
        if not held and topic not in call.topics():
            raise unknown(topic)
        conclude(operation, answers + held)
    else:
        _at_cluster(call, operation, topology)


def change_channel(call: AdminCall, verb: str, topic: str, channel: str) -> None:
    """Pause, unpause or empty a channel, wherever it is."""
    operation = _on_channel(verb, topic, channel)
    topology = call.topology(topic)
    if topology.redesigned:
        call.at_leaders(operation, topology)
    else:
        conclude(operation, _at_holders(call, operation, topic))


def set_offset(call: AdminCall, topic: str, channel: str, partition: int, position: str) -> None:
    """Let a channel go on elsewhere in one partition's log."""
    operation = Operation(
        f"set the offset of channel {channel!r} of topic {topic!r} to {position}",
        "/channel/setoffset",
        (("topic", topic), ("channel", channel)),
        body=position.encode(),
    )
    topology = _redesigned(call, topic, "offsets")
    if partition >= topology.partition_num > 0:
        raise ConfigError(
            f"topic {topic!r} has {topology.partition_num} partitions, no {partition}"
        )
    call.at_leaders(operation, topology, only=partition)


def set_order(call: AdminCall, topic: str, channel: str, *, on: bool) -> None:
    """Mark a channel as consumed in order, or not."""
    operation = Operation(
        f"{'set' if on else 'reset'} the order of channel {channel!r} of topic {topic!r}",
        "/channel/setorder",
        (("topic", topic), ("channel", channel), ("order", str(on).lower())),
    )
    call.at_leaders(operation, _redesigned(call, topic, "order"))


def _on_channel(verb: str, topic: str, channel: str) -> Operation:
    return Operation(
        f"{verb} channel {channel!r} of topic {topic!r}",
        f"/channel/{verb}",
        (("topic", topic), ("channel", channel)),
    )


def _at_holders(call: AdminCall, operation: Operation, topic: str) -> list[Answer]:
    """The answers of the original nsqds that have the topic."""
    held = relevant(call.at_nsqds(operation, call.nodes(), topic))
    if not held:
        raise unknown(topic)
    return held


def _at_cluster(call: AdminCall, operation: Operation, topology: Topology) -> None:
    """Make or delete a channel of a redesigned cluster."""
    if not topology.meta.channels_by_lookup:
        call.at_leaders(operation, topology)
        return
    call.survey()
    answer = call.at_leading_lookup(operation)
    if answer.verdict is Verdict.NO_TOPIC:
        raise unknown(topology.topic)
    conclude(operation, [answer])


def _redesigned(call: AdminCall, topic: str, what: str) -> Topology:
    topology = call.topology(topic)
    if not topology.redesigned:
        raise NotSupported(
            f"topic {topic!r} is not on a redesigned NSQ: channels have no {what} there"
        )
    return topology
