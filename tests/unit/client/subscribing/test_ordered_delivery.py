"""One message of a partition at a time, however the server repeats itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nsqsmart.client.messages import message as message_module
from nsqsmart.client.messages.message import Detailed, Message, ReadBatch
from nsqsmart.client.subscribing import ordered_delivery as lanes_module
from nsqsmart.client.subscribing.ordered_delivery import OrderedDelivery
from nsqsmart.config import ConsumerConfig
from nsqsmart.names import Address
from nsqsmart.policy.answers.lookup import Node
from nsqsmart.policy.topology import Target

ADDRESS = Address("a", 4150)


class World:
    """Stands for subscription and consumer, on a clock of its own."""

    topic, channel = "t", "c"
    target = Target.at(Node(ADDRESS, ADDRESS), 3)
    msg_timeout = 60.0
    max_msg_timeout = 900.0

    def __init__(self, **options: object) -> None:
        self.now = self.heard_at = 1000.0
        self.config = ConsumerConfig(**options)
        self.live = True
        self.ended = False
        self.goes_on = False
        self.handed_over: list[Message] = []
        self.sent: list[tuple[object, ...]] = []
        self.calls: list[tuple[float, Callable[[], None]]] = []
        self.violations: list[tuple[int, int]] = []
        self.forgotten: list[Message] = []
        self.ordering = OrderedDelivery(self, self)

    def deliver(self, messages: list[Message]) -> None:
        self.handed_over += messages

    def at(self, when: float, call: Callable[[], None]) -> None:
        self.calls.append((when, call))

    def on_out_of_order(self, message: Message, before: tuple[int, int]) -> bool:
        self.violations.append(before)
        return self.goes_on

    def acknowledge(self, message: Message) -> None:
        self.sent.append(("FIN", message.internal_id, message.attempts))

    def send_touch(self, message: Message) -> None:
        self.sent.append(("TOUCH", message.internal_id))

    def send_requeue(self, message: Message, delay: float) -> None:
        self.sent.append(("REQ", message.internal_id, delay))

    def forget(self, message: Message) -> None:
        self.forgotten.append(message)

    def hang_up(self) -> None:
        self.ended = True

    def offer(self, number: int, attempts: int = 1, offset: int | None = None) -> Message:
        """The server sends message *number*."""
        self.heard_at = self.now
        message = Detailed(ReadBatch(self), 1, attempts, number.to_bytes(8, "big") + bytes(8), b"x")
        message.offset = 100 * number if offset is None else offset
        message.size = 100
        self.ordering.offer(message)
        return message

    def numbers(self) -> list[int]:
        """What was handed over since the last time."""
        found = [message.internal_id for message in self.handed_over]
        self.handed_over.clear()
        return found

    def pass_time(self, until: float) -> None:
        """Make the calls that fall due."""
        while due := sorted((call for call in self.calls if call[0] <= until), key=lambda c: c[0]):
            self.calls.remove(due[0])
            self.now = due[0][0]
            due[0][1]()
        self.now = until


@pytest.fixture
def world(monkeypatch) -> World:
    made = World()
    monkeypatch.setattr(lanes_module, "monotonic", lambda: made.now)
    monkeypatch.setattr(message_module, "monotonic", lambda: made.now)
    return made


def test_each_waits_for_the_one_before(world):
    first, second = world.offer(1), world.offer(2)
    world.offer(3)
    assert world.numbers() == [1]
    world.ordering.done(first, finished=True)
    assert world.numbers() == [2]
    world.ordering.done(second, finished=True)
    assert world.numbers() == [3]


def test_a_copy_of_what_was_finished_is_acknowledged_and_not_handled(world):
    first = world.offer(1)
    copies = [world.offer(1, attempts=2), world.offer(1, attempts=3)]
    world.offer(2)
    world.ordering.done(first, finished=True)
    assert world.numbers() == [1, 2]
    assert world.sent == [("FIN", 1, 2), ("FIN", 1, 3)]
    assert all(copy.answered for copy in copies)


def test_a_copy_of_what_failed_is_handled_again(world):
    first = world.offer(1)
    world.offer(1, attempts=2)
    world.ordering.done(first, finished=False)
    assert world.numbers() == [1, 1]
    assert world.sent == []


def test_a_worker_that_comes_late_moves_nothing(world):
    first = world.offer(1)
    world.ordering.done(first, finished=True)
    second = world.offer(2)
    world.offer(3)
    world.ordering.done(first, finished=True)
    assert world.numbers() == [1, 2]
    world.ordering.done(second, finished=True)
    assert world.numbers() == [3]


def fail(world: World, message: Message, delay: float | None = None, *, counts: bool = True):
    """As a handler that raises: hold, then done."""
    message._answer = True
    world.ordering.hold(message, delay, counts=counts)
    world.ordering.done(message, finished=False)


def test_a_failed_head_is_held_ever_longer_then_given_back(world):
    for attempt, pause in [(1, 1), (2, 2), (3, 4), (4, 8)]:
        fail(world, world.offer(1, attempts=attempt))
        begun = world.now
        world.pass_time(begun + pause - 0.01)
        assert world.sent == []
        world.pass_time(begun + pause)
        assert world.sent == [("REQ", 1, 0.0)]
        world.sent.clear()


def test_success_of_the_head_ends_the_count(world):
    fail(world, world.offer(1))
    world.pass_time(world.now + 1)
    fail(world, world.offer(1, attempts=2))
    world.pass_time(world.now + 2)
    world.ordering.done(world.offer(1, attempts=3), finished=True)
    world.sent.clear()
    fail(world, world.offer(2))
    world.pass_time(world.now + 1)
    assert world.sent == [("REQ", 2, 0.0)]


def test_no_pause_is_longer_than_the_longest(world):
    world.config = ConsumerConfig(max_backoff_duration=10, backoff_multiplier=3)
    for attempt in range(1, 50):
        fail(world, world.offer(1, attempts=attempt))
        world.pass_time(world.now + 10)
        assert world.sent.pop() == ("REQ", 1, 0.0)


def test_a_wish_for_a_delay_is_kept_here_and_one_without_backoff_does_not_count(world):
    fail(world, world.offer(1), 5.0, counts=False)
    world.pass_time(world.now + 4.9)
    assert world.sent == []
    world.pass_time(world.now + 0.2)
    assert world.sent == [("REQ", 1, 0.0)]
    world.sent.clear()
    fail(world, world.offer(1, attempts=2))
    world.pass_time(world.now + 1)
    assert world.sent == [("REQ", 1, 0.0)]


def test_while_it_is_held_it_is_touched_before_its_time_is_up(world):
    fail(world, world.offer(1), 100.0)
    world.pass_time(world.now + 100)
    assert world.sent == [("TOUCH", 1)] * 3 + [("REQ", 1, 0.0)]


def test_beyond_the_servers_maximum_it_is_not_touched_but_given_back(world):
    fail(world, world.offer(1), 2000.0)
    world.pass_time(1000.0 + 899)
    touches = world.sent[:]
    assert set(touches) == {("TOUCH", 1)}
    world.pass_time(1000.0 + 900)
    assert world.sent == [*touches, ("REQ", 1, 0.0)]
    # The last one put its time to the maximum: another would have been for nothing.
    assert len(touches) == 28


def test_a_lost_connection_ends_the_hold(world):
    fail(world, world.offer(1), 100.0)
    world.live = False
    world.pass_time(world.now + 200)
    assert world.sent == []
    assert world.calls == []


def test_at_close_what_is_held_goes_back_at_once_and_once(world):
    fail(world, world.offer(1), 100.0)
    world.ordering.release_held()
    world.ordering.release_held()
    world.pass_time(world.now + 200)
    assert world.sent == [("REQ", 1, 0.0)]


def test_a_head_that_fails_and_fails_is_said_aloud_now_and_then(world, caplog):
    for attempt in range(1, 301):
        fail(world, world.offer(1, attempts=attempt), 0.0)
    loud = [record.args[-1] for record in caplog.records if "holds partition" in record.msg]
    assert loud == [10, 20, 50, 100, 200, 300]


@pytest.mark.parametrize("goes_on", [False, True])
def test_out_of_order_is_told_and_ends_it_unless_told_otherwise(world, goes_on):
    world.goes_on = goes_on
    world.offer(5)
    world.offer(4, offset=600)
    assert world.violations == [(500, 5)]
    assert world.ended is not goes_on
    assert len(world.ordering._waiting) == int(goes_on)


class Life:
    """Notes of what would be logged."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def note(self, *event: object) -> None:
        self.events.append(event)


def test_a_traced_head_that_waits_is_logged_as_blocked(world):
    message = world.offer(1)
    message._life = Life()
    fail(world, message)
    assert message._life.events == [("blocked", 1.0)]
    world.pass_time(world.now + 1)
    assert message._life.events == [("blocked", 1.0)]  # the subscription logs what it sends


@pytest.mark.parametrize("at_close", [True, False])
def test_a_traced_head_whose_connection_ends_is_logged_as_lost(world, at_close):
    message = world.offer(1)
    message._life = Life()
    fail(world, message, 5.0)
    world.live = False
    if at_close:
        world.ordering.release_held()
    world.pass_time(world.now + 60)
    assert message._life.events == [("blocked", 5.0), ("lost",)]


def test_a_traced_copy_is_logged_as_one(world):
    first, copy = world.offer(1), world.offer(1, attempts=2)
    copy._life = Life()
    world.ordering.done(first, finished=True)
    assert copy._life.events == [("duplicate",)]


def test_a_rewind_is_told_and_no_violation(world, caplog):
    caplog.set_level("INFO")
    world.ordering.done(world.offer(5), finished=True)
    world.ordering.done(world.offer(3), finished=True)
    assert world.numbers() == [5, 3]
    assert "goes back to offset 300" in caplog.text
    assert not world.violations


def test_what_came_on_the_connection_before_is_known(caplog):
    """Who comes now and was passed over then is out of order, and no rewind."""
    caplog.set_level("INFO")
    old, new = World(), World()
    for number in (1, 2, 4):
        old.ordering.done(old.offer(number), finished=True)
    new.ordering.follow(old.ordering)
    new.ordering.done(new.offer(2), finished=True)
    assert "goes back to offset 200" in caplog.text
    assert not new.violations
    new.offer(3)
    assert new.violations == [(200, 2)]
    assert new.ended


def test_what_follows_one_out_of_order_is_not_handled_and_the_next_connection_goes_on():
    old, new = World(), World()
    old.ordering.done(old.offer(5), finished=True)
    old.offer(4, offset=600)
    behind = old.offer(7)
    assert (old.numbers(), old.forgotten) == ([5], [behind])
    new.ordering.follow(old.ordering)
    # The server insists on it, and the partition is not lost.
    new.offer(4, offset=600)
    assert (new.numbers(), new.violations) == ([4], [])


def test_a_new_connection_waits_for_what_the_one_before_has_in_hand():
    old, new = World(), World()
    first, waiting = old.offer(1), old.offer(2)
    new.ordering.follow(old.ordering)
    # What waited there is the server's again.
    assert old.forgotten == [waiting]
    assert (waiting.body, first.body != b"") == (b"", True)
    assert old.numbers() == [1]
    again, _ = new.offer(1), new.offer(2)
    assert new.numbers() == []
    old.ordering.done(first, finished=False)
    assert new.numbers() == [1]
    new.ordering.done(again, finished=True)
    assert new.numbers() == [2]


def test_with_nothing_in_hand_it_begins_at_once():
    old, new = World(), World()
    old.ordering.done(old.offer(1), finished=True)
    new.ordering.follow(old.ordering)
    new.offer(2)
    assert new.numbers() == [2]


def test_several_connections_may_come_and_go_meanwhile():
    old, middle, new = World(), World(), World()
    first = old.offer(1)
    middle.ordering.follow(old.ordering)
    lost = middle.offer(1)
    new.ordering.follow(middle.ordering)
    assert middle.forgotten == [lost]
    new.offer(1)
    assert (middle.numbers(), new.numbers()) == ([], [])
    old.ordering.done(first, finished=False)
    assert (middle.numbers(), new.numbers()) == ([], [1])


def test_what_was_followed_and_ended_before_anything_came_holds_nothing_up():
    old, new = World(), World()
    first = old.offer(1)
    new.ordering.follow(old.ordering)
    old.ordering.done(first, finished=False)
    new.offer(1)
    assert new.numbers() == [1]


def test_a_head_that_times_out_again_and_again_is_told_as_its_failing_twin(world, caplog):
    """Its handler runs on, or was too late each time: copies come, and time out too."""
    first = world.offer(1, attempts=9)
    assert not world.ordering.is_blocked()
    copies = [world.offer(1, attempts=number) for number in (10, 11, 20)]
    assert len(caplog.records) == 2
    for message in (first, *copies, world.offer(2, attempts=10)):
        world.ordering.tell(message)  # each is found out to be late as well
        world.ordering.done(message, finished=False)
        blocked = message.internal_id == 1
        assert world.ordering.is_blocked() == blocked
    loud = [record.args[-1] for record in caplog.records if "holds partition" in record.msg]
    assert loud == [10, 20, 10]
