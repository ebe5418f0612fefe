"""One subscribed connection: what is sent when, and that its end is always told."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from time import monotonic

import pytest

from nsqsmart.client.messages.checked_out import Timeouts
from nsqsmart.client.messages.message import Message
from nsqsmart.client.subscribing.request import SubscribeRequest
from nsqsmart.client.subscribing.start_position import ChannelPositions
from nsqsmart.client.subscribing.subscription import Subscription
from nsqsmart.config import ConsumerConfig
from nsqsmart.errors import ConnectError, ConnectionLost, NsqError, ServerError
from nsqsmart.names import Address
from nsqsmart.net.handshake import make_greeting
from nsqsmart.net.write_buffer import WriteBuffer
from nsqsmart.policy.answers.lookup import Node
from nsqsmart.policy.topology import Target
from nsqsmart.wire.frames import ERROR, HEARTBEAT_FRAME, MESSAGE, encode_frame
from tests.helpers import eventually
from tests.peers import Peer, Script, message_frame, subscribed
from tests.unit.client.doubles import expire


class Owner:
    """Stands for the engine: RDY 5 at once, and notes of all it is told."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.ended: list[NsqError] = []
        self.refused: list[ServerError] = []
        self.results: list[bool] = []
        self.channel_positions = ChannelPositions(ConsumerConfig())
        self.timeouts = Timeouts()
        self.on_message: Callable[[], None] = lambda: None

    def on_subscribed(self, subscription: Subscription) -> None:
        subscription.write_buffer.rdy = 5
        subscription.write_buffer.flush()

    def on_ended(self, subscription: Subscription, reason: NsqError) -> None:
        self.ended.append(reason)

    def on_refusal(self, error: ServerError) -> None:
        self.refused.append(error)

    def on_dirty(self, write_buffer: WriteBuffer) -> None:
        write_buffer.flush()

    def deliver(self, messages: list[Message]) -> None:
        self.messages += messages
        self.on_message()

    def on_result(self, message: Message, *, ok: bool) -> None:
        self.results.append(ok)

    def at(self, when: float, call: Callable[[], None]) -> None: ...

    def on_out_of_order(self, message: Message, before: tuple[int, int]) -> bool:
        return True


def wish_for(address: tuple[str, int], partition: int | None = None, **options) -> SubscribeRequest:
    ordered = options.pop("sub_ordered", False)
    config = ConsumerConfig(**options)
    node = Node(Address(*address), Address(address[0], 1))
    target = Target.at(node, partition)
    return SubscribeRequest("t", "c", target, ordered, make_greeting(config), config)


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def begin(owner) -> Iterator[Callable[..., Subscription]]:
    """Subscribes at a peer that plays *script*."""
    begun: list[tuple[Peer, Subscription]] = []

    def start(script: Script, partition: int | None = None, **options) -> Subscription:
        peer = Peer(script)
        subscription = Subscription(
            wish_for(peer.address, partition, **options), owner, owner.channel_positions
        )
        begun.append((peer, subscription))
        subscription.start()
        return subscription

    yield start
    for peer, subscription in begun:
        subscription.hang_up()
        with peer:
            assert subscription.join(monotonic() + 5)
    assert len(owner.ended) == len(begun)


@pytest.mark.parametrize(
    ("partition", "options", "command"),
    [
        (None, {}, b"SUB t c"),
        (None, {"positions": True}, b"SUB t c"),
        (2, {}, b"SUB t c 2"),
        (2, {"positions": True}, b"SUB_ADVANCED t c 2"),
        (2, {"sub_ordered": True}, b"SUB_ORDERED t c 2"),
    ],
)
def test_how_it_subscribes(partition, options, command):
    assert wish_for(("a", 1), partition, **options).command() == command + b"\n"


def test_messages_come_and_answers_go(begin, owner):
    said: list[bytes] = []
    frames = [message_frame(number) for number in range(1, 4)]
    subscription = begin(subscribed(said.append, *frames), partition=2)
    eventually(lambda: len(owner.messages) == 3)
    assert said[:2] == [b"SUB t c 2", b"RDY 5"]
    assert subscription.in_flight == 3
    finished, requeued, touched = owner.messages
    assert finished.finish()
    assert requeued.requeue(1.5)
    assert touched.touch()
    eventually(lambda: len(said) == 5)
    ids = [number.to_bytes(16, "big") for number in (1, 2, 3)]
    assert said[2:] == [b"FIN " + ids[0], b"REQ " + ids[1] + b" 1500", b"TOUCH " + ids[2]]
    assert subscription.in_flight == 1


def test_all_answers_are_sent_though_another_thread_is_sending(begin, owner):
    said: list[bytes] = []
    subscription = begin(subscribed(said.append, message_frame(1)))
    eventually(lambda: len(owner.messages) == 1)
    with subscription.write_buffer._lock:
        assert owner.messages[0].requeue(0)
        ending = threading.Thread(target=subscription.send_all, args=(monotonic() + 10,))
        ending.start()
        ending.join(0.05)
        assert ending.is_alive()
    ending.join(10)
    eventually(lambda: len(said) == 3)


def test_a_delay_is_by_attempts_unless_told_and_has_a_limit(begin, owner):
    said: list[bytes] = []
    frames = [message_frame(number, attempts=3) for number in range(1, 4)]
    begin(subscribed(said.append, *frames), default_requeue_delay=2, max_requeue_delay=5)
    eventually(lambda: len(owner.messages) == 3)
    for message, delay in zip(owner.messages, [None, 1, -3], strict=True):
        assert message.requeue(delay)
    eventually(lambda: len(said) == 5)
    assert [line.rpartition(b" ")[2] for line in said[2:]] == [b"5000", b"1000", b"0"]


def test_late_answers_are_not_sent(begin, owner):
    said: list[bytes] = []
    begin(subscribed(said.append, *map(message_frame, range(3))))
    eventually(lambda: len(owner.messages) == 3)
    for message in owner.messages:
        expire(message)
    finished, requeued, touched = owner.messages
    assert [finished.finish(), requeued.requeue(), touched.touch()] == [False] * 3
    assert owner.timeouts.count == 2
    assert len(said) == 2
    # The server has the first two again.
    assert finished._subscription.in_flight == 1


class Life:
    """Notes of what would be logged."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def note(self, *event: object) -> None:
        self.events.append(event)


def test_what_is_sent_for_a_traced_message_is_logged(begin, owner):
    subscription = begin(subscribed(lambda line: None, *map(message_frame, range(5))))
    eventually(lambda: len(owner.messages) == 5)
    lives = [Life() for _ in owner.messages]
    for message, life in zip(owner.messages, lives, strict=True):
        message._life = life
    finished, requeued, too_late, later, lost = owner.messages
    finished.touch()
    finished.finish()
    requeued.requeue(1.5)
    expire(too_late)
    too_late.finish()
    expire(later)
    later.touch()
    later.requeue()
    subscription.hang_up()
    lost.touch()
    lost.requeue()
    assert [life.events for life in lives] == [
        [("touched",), ("finished",)],
        [("requeued", 1.5)],
        [("timed_out",)],
        [("timed_out",)],
        [("lost",)],
    ]


def test_a_polite_end_waits_for_its_confirmation(begin):
    said: list[bytes] = []
    subscription = begin(subscribed(said.append))
    eventually(lambda: b"RDY 5" in said)
    subscription.close_politely()
    assert subscription.close_wait.wait(5)
    assert said[-2:] == [b"RDY 0", b"CLS"]


def test_a_fin_that_was_refused_leaves_its_message_unfinished(begin, owner):
    message_id = bytes(range(32, 48))
    numbers = " ".join(map(str, message_id))
    said = f"E_FIN_FAILED FIN [{numbers}] failed: Message ID not in flight".encode()

    def speak(talk) -> None:
        assert talk.line().startswith(b"FIN ")
        talk.send(encode_frame(ERROR, said.replace(b"FIN", b"REQ")))
        talk.send(encode_frame(ERROR, said))

    frame = encode_frame(MESSAGE, struct.pack(">QH16sQI", 1, 1, message_id, 500, 31) + b"x")
    script = subscribed(lambda line: None, frame, speak=speak)
    subscription = begin(script, partition=2, sub_ordered=True)
    (message,) = eventually(lambda: owner.messages)
    assert message.finish()
    eventually(lambda: len(owner.refused) == 2)
    assert subscription._memory.remember().lowest == 500


def test_a_refused_sub_is_the_reason(begin, owner):
    def refuse(talk) -> None:
        talk.greet()
        talk.line()
        talk.send(encode_frame(ERROR, b"E_FAILED_ON_NOT_LEADER"))
        talk.stall()

    subscription = begin(refuse)
    eventually(lambda: owner.ended)
    assert owner.ended[0].code == "E_FAILED_ON_NOT_LEADER"
    assert not subscription.live
    assert subscription.close_wait.is_set()


def test_who_cannot_be_reached_is_the_reason(owner):
    with Peer(lambda talk: None) as peer:
        pass
    subscription = Subscription(wish_for(peer.address), owner, owner.channel_positions)
    subscription.start()
    assert subscription.join(monotonic() + 5)
    assert isinstance(owner.ended[0], ConnectError)
    subscription.close_politely()
    subscription.hang_up()


def test_hung_up_before_it_is_subscribed_it_ends_all_the_same(owner):
    with Peer(subscribed(lambda line: None)) as peer:
        subscription = Subscription(wish_for(peer.address), owner, owner.channel_positions)
        subscription.hang_up()
        subscription.start()
        assert subscription.join(monotonic() + 5)
    assert len(owner.ended) == 1


def test_silence_is_the_end_and_a_heartbeat_is_not(begin, owner):
    said: list[bytes] = []
    script = subscribed(said.append, HEARTBEAT_FRAME)
    subscription = begin(script, heartbeat_interval=10)
    eventually(lambda: b"NOP" in said)
    subscription.watch(subscription.heard_at + 24)
    assert subscription.live
    subscription.watch(subscription.heard_at + 26)
    eventually(lambda: owner.ended)


def test_who_takes_nothing_is_waited_for_no_longer_than_the_write_timeout(begin):
    lines = []
    script = subscribed(lines.append, speak=lambda talk: talk.stall())
    subscription = begin(script, write_timeout=0.2)
    eventually(lambda: b"RDY 5" in lines)
    # More than the kernels of both ends hold for it.
    sending = threading.Thread(target=subscription.write_buffer.send, args=(bytes(1 << 24),))
    sending.start()
    try:
        eventually(lambda: subscription.write_buffer.broken, timeout=5)
    finally:
        subscription.hang_up()
        sending.join(5)


def test_an_error_on_the_readers_thread_is_told_as_an_end(begin, owner, caplog):
    """Or the partition would not be dialled again."""

    def fail() -> None:
        raise ValueError("oops")

    owner.on_message = fail
    begin(subscribed(lambda line: None, message_frame(1)))
    eventually(lambda: owner.ended)
    assert isinstance(owner.ended[0], ConnectionLost)
    assert "oops" in caplog.text
