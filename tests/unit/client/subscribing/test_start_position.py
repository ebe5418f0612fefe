"""What a consumer remembers of a partition, and what it asks the nsqd that leads it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from nsqsmart.client.messages.message import Detailed, Message, ReadBatch
from nsqsmart.client.subscribing.start_position import ChannelPositions, Memory
from nsqsmart.config import ConsumerConfig
from nsqsmart.errors import ConnectError, ConnectionLost, DiscoveryError
from nsqsmart.names import Address
from nsqsmart.net.cancel_scope import CancelScope
from nsqsmart.policy.answers.lookup import Node
from nsqsmart.policy.positions import Gate
from nsqsmart.policy.topology import Target
from tests.peers import Peer, Talk, http_answer
from tests.unit.client.doubles import Source

NOWHERE = Address("127.0.0.1", 1)


class Nsqd:
    """Answers /stats and /channel/setoffset as told."""

    def __init__(self) -> None:
        self.channel: dict[str, object] | None = {
            "channel_name": "c",
            "depth": 0,
            "depth_size": 0,
            "client_num": 1,
        }
        self.status = 200
        self.posts: list[bytes] = []
        self.on_look: Callable[[], None] = lambda: None
        self.peer = Peer(self._play)

    def _play(self, talk: Talk) -> None:
        method = talk.line().split()[0]
        size = 0
        while line := talk.line().strip().lower():
            if line.startswith(b"content-length:"):
                size = int(line.partition(b":")[2])
        if method == b"POST":
            self.posts.append(talk.read(size))
            talk.send(http_answer(200, b""))
            return
        self.on_look()
        channels = [self.channel] if self.channel else []
        topic = {"topic_partition": "3", "depth": 600, "backend_start": 0, "channels": channels}
        talk.send(http_answer(self.status, json.dumps({"topics": [topic]}).encode()))


class Replacing:
    """A subscription that has just said SUB."""

    topic, channel = "t", "c"
    ordering = None
    heard_at, msg_timeout = 0.0, 60.0

    def __init__(self, http: Address, *, ordered: bool = True, partition: int | None = 3) -> None:
        self.target = Target.at(Node(NOWHERE, http), partition)
        self.ordered = ordered
        self.scope = CancelScope()

    def describe(self) -> str:
        return "t/c partition 3"


@pytest.fixture
def nsqd():
    made = Nsqd()
    with ExitStack() as stack:
        stack.enter_context(made.peer)
        yield made


def stood_at(nsqd: Nsqd, **options) -> Replacing:
    return Replacing(Address(*nsqd.peer.address), **options)


def message_at(offset: int, *, finished: bool = False) -> Message:
    message = Detailed(ReadBatch(Source()), 1, 1, offset.to_bytes(16, "big"), b"x")
    message.offset, message._answer = offset, finished or None
    return message


def channel_positions(**options) -> ChannelPositions:
    return ChannelPositions(ConsumerConfig(**options))


def test_a_memory_knows_the_lowest_that_is_not_finished():
    memory = Memory()
    assert memory.remember() == (None, 0, False, False)
    first, second = message_at(60), message_at(30)
    memory.take([first, second, message_at(90)])
    assert memory.remember() == (30, 3, False, False)
    second._answer = True
    assert memory.remember() == (60, 2, True, False)
    # Delivered again, and finished then: the first copy is of no account.
    memory.take([message_at(60, finished=True)])
    assert memory.remember() == (90, 1, True, False)
    memory.clear()
    assert memory.remember() == (None, 0, True, False)
    memory.count(4)
    assert memory.remember() == (None, 4, True, False)


def test_a_memory_does_not_grow_with_what_is_finished():
    memory = Memory()
    for begin in range(0, 50_000, 100):
        memory.take([message_at(offset, finished=True) for offset in range(begin, begin + 100)])
        assert len(memory._open) <= 1124
    memory.take([message_at(offset) for offset in range(3000)])
    assert memory.remember().unfinished == 3000


def copies_of(memory: Memory, *answers: bool | None) -> list[Message]:
    """One message that comes again and again; each copy is answered before the next one comes."""
    copies = []
    for answer in answers:
        copies += [message_at(60)]
        memory.take(copies[-1:])
        copies[-1]._answer = answer
    return copies


@pytest.mark.parametrize(
    ("answers", "refused", "unfinished"),
    [
        # The first one behind a SUB_ORDERED came twice, and the second copy was requeued.
        ((True, False), 0, 0),
        ((None, True, False), 0, 0),
        ((False, False, False), 0, 1),
        # A server with two copies of one message refuses one of two FINs, or the only one.
        ((True, True), 1, 0),
        ((True, False), 1, 1),
        ((True, False, True), 1, 0),
    ],
)
def test_what_was_finished_is_so_whatever_becomes_of_its_copies(answers, refused, unfinished):
    memory = Memory()
    copies = copies_of(memory, *answers)
    for _ in range(refused):
        memory.refuse(copies[0].id)
        memory.refuse(b"of another one..")
    assert memory.remember().unfinished == unfinished
    # Neither does what comes again and again take up more and more.
    assert len(memory._copies) == unfinished
    assert len(memory._refused) == min(unfinished, refused)


def test_a_copy_that_is_finished_later_counts():
    memory = Memory()
    slow, quick = copies_of(memory, None, False)
    assert memory.remember().unfinished == 1
    slow._answer = True
    assert memory.remember().unfinished == 0
    copies_of(memory, *[False] * 50)
    assert memory._copies == {60: []}
    assert (quick.finished, memory.remember().unfinished) == (False, 1)


def test_stragglers_are_no_messages():
    memory = Memory()
    memory.gate = Gate(60)
    straggler, right = message_at(30), message_at(60)
    assert memory.take([straggler, right]) == [right]
    assert straggler._taken
    assert straggler._subscription.forgotten == [straggler]
    assert memory.gate is None
    assert memory.remember().lowest == 60


def test_who_is_hung_up_while_it_looks_sets_no_channel(nsqd):
    stood = stood_at(nsqd)
    nsqd.on_look = stood.scope.cut
    with pytest.raises(DiscoveryError):
        channel_positions(start_at="head").settle(stood)
    assert nsqd.posts == []


def test_nothing_is_asked_where_nothing_was_unfinished(nsqd):
    nsqd.status = 500
    ours = channel_positions()
    assert ours.settle(Replacing(NOWHERE, partition=None)) is None
    memory = ours.settle(stood_at(nsqd))
    assert memory is ours.settle(stood_at(nsqd))
    assert ours.channels_lost == 0


def test_a_lost_channel_is_set_back_once(nsqd, caplog):
    ours = channel_positions()
    memory = ours.settle(stood_at(nsqd))
    memory.take([message_at(120), message_at(60)])
    ours.settle(stood_at(nsqd))
    assert nsqd.posts == [b"virtual_queue:60"]
    assert memory.gate is not None
    with caplog.at_level(logging.ERROR):
        ours.settle(stood_at(nsqd))
    assert nsqd.posts == [b"virtual_queue:60"]
    assert "skipped them" in caplog.text
    assert ours.channels_lost == 2


@pytest.mark.parametrize(
    ("options", "ordered", "clients"),
    [({"on_channel_lost": "warn"}, True, 1), ({}, False, 1), ({}, True, 2)],
)
def test_otherwise_it_is_said_and_forgotten(nsqd, caplog, options, ordered, clients):
    nsqd.channel["client_num"] = clients
    ours = channel_positions(**options)
    memory = ours.settle(stood_at(nsqd, ordered=ordered))
    memory.take([message_at(60)])
    with caplog.at_level(logging.ERROR):
        ours.settle(stood_at(nsqd, ordered=ordered))
    assert nsqd.posts == []
    assert ("unless one of 1 other consumers" in caplog.text) == (clients == 2)
    ours.settle(stood_at(nsqd, ordered=ordered))
    assert ours.channels_lost == 1


def test_nothing_is_said_of_what_was_finished_before_its_copy_failed(nsqd, caplog):
    ours = channel_positions()
    copies_of(ours.settle(stood_at(nsqd)), True, False)
    with caplog.at_level(logging.ERROR):
        ours.settle(stood_at(nsqd))
    assert (ours.channels_lost, nsqd.posts, caplog.text) == (0, [], "")


def test_nothing_is_said_of_what_another_consumer_has_finished_meanwhile(nsqd, caplog):
    """What this one had in hand when its leader changed went to the other one."""
    ours = channel_positions()
    ours.settle(stood_at(nsqd)).take([message_at(30, finished=True), message_at(60)])
    with caplog.at_level(logging.ERROR):
        ours.settle(stood_at(nsqd))
    assert (ours.channels_lost, nsqd.posts, caplog.text) == (0, [], "")


def test_what_cannot_be_asked_is_asked_again_and_not_for_ever(nsqd, caplog):
    ours = channel_positions()
    ours.settle(stood_at(nsqd)).take([message_at(60)])
    nsqd.status = 500
    for _ in range(2):
        with pytest.raises(DiscoveryError, match="stats answered 500"):
            ours.settle(stood_at(nsqd))
    # Where HTTP is closed to consumers they must consume all the same.
    with caplog.at_level(logging.ERROR):
        ours.settle(stood_at(nsqd))
    assert "cannot tell whether t/c partition 3 still has its place" in caplog.text
    nsqd.status = 200
    ours.settle(stood_at(nsqd))
    assert nsqd.posts == [b"virtual_queue:60"]


def test_a_channel_that_the_nsqd_does_not_know_says_nothing(nsqd):
    ours = channel_positions()
    ours.settle(stood_at(nsqd)).take([message_at(60)])
    nsqd.channel = None
    ours.settle(stood_at(nsqd))
    assert (ours.channels_lost, nsqd.posts) == (0, [])


def test_start_at_counts_once_for_each_partition(nsqd):
    ours = channel_positions(start_at="head")
    memory = ours.settle(stood_at(nsqd))
    assert memory.gate is not None
    ours.settle(stood_at(nsqd))
    assert nsqd.posts == [b"virtual_queue:0"]
    ours.check(Target.at(Node(NOWHERE, NOWHERE), 0))
    with pytest.raises(ConnectError, match="no offsets") as caught:
        ours.check(Target.at(Node(NOWHERE, NOWHERE), None))
    assert caught.value.permanent


def test_a_start_without_a_channel_is_tried_again(nsqd):
    channel, nsqd.channel = nsqd.channel, None
    ours = channel_positions(start_at="head")
    with pytest.raises(ConnectionLost, match="does not know the channel"):
        ours.settle(stood_at(nsqd))
    nsqd.channel = channel
    ours.settle(stood_at(nsqd))
    assert nsqd.posts == [b"virtual_queue:0"]
