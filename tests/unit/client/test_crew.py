"""What a handler's end means for its message, and that nobody who works stops working."""

from __future__ import annotations

import threading
from time import monotonic

import pytest

from nsqsmart.client.crew import Crew
from nsqsmart.client.message import Message, Requeue
from nsqsmart.names import Address
from nsqsmart.policy.lookup_answers import Node
from nsqsmart.policy.topology import Target
from tests.helpers import eventually

ADDRESS = Address("a", 4150)


class Boss:
    """Stands for the consumer."""

    def __init__(self) -> None:
        self.draining = False
        self.watching = False
        self.results: list[bool] = []
        self.fatal: list[BaseException] = []

    def on_result(self, message: Message, *, ok: bool) -> None:
        self.results.append(ok)

    def on_fatal(self, error: BaseException) -> None:
        self.fatal.append(error)


class Source:
    """Stands for a subscription, and for its lane."""

    topic, channel = "t", "c"
    target = Target.at(Node(ADDRESS, ADDRESS), None)
    msg_timeout = 60.0
    live = True

    def __init__(self, lane: object = None) -> None:
        self.heard_at = monotonic()
        self.lane = lane
        self.sent: list[tuple[object, ...]] = []

    def finish(self, message: Message) -> bool:
        self.sent.append(("FIN",))
        return True

    def requeue(self, message: Message, delay: float | None, *, backoff: bool) -> bool:
        self.sent.append(("REQ", delay, backoff))
        return True

    def send_requeue(self, message: Message, delay: float) -> None:
        self.sent.append(("REQ now", delay))


class Lane:
    def __init__(self) -> None:
        self.ended: list[bool] = []

    def done(self, message: Message, *, finished: bool) -> None:
        self.ended.append(finished)


class Life:
    """Notes of what would be logged, and with which error."""

    def __init__(self) -> None:
        self.error: str | None = None
        self.events: list[str] = []

    def note(self, event: str) -> None:
        self.events.append(event)


def message_of(source: Source) -> Message:
    return Message(source, 1, 1, bytes(16), b"x")


def life_of(handler, source: Source | None = None) -> Life:
    """What a traced message's log says of *handler*."""
    message = message_of(source or Source())
    message.life = life = Life()
    Crew(handler, Boss(), 0).deliver([message])
    return life


def handle(handler, boss: Boss | None = None, source: Source | None = None):
    """Run *handler* on one message, in place; what was sent, and the crew's counts."""
    boss, source = boss or Boss(), source or Source()
    crew = Crew(handler, boss, 0)
    crew.deliver([message_of(source)])
    return source.sent, crew.tallies[0], boss


def raising(error: BaseException):
    def handler(message: Message) -> None:
        raise error

    return handler


@pytest.mark.parametrize("result", [None, True])
def test_returning_finishes(result):
    sent, tally, boss = handle(lambda message: result)
    assert sent == [("FIN",)]
    assert (tally.finished, boss.results) == (1, [])


def test_a_success_is_told_only_while_it_matters():
    boss = Boss()
    boss.watching = True
    handle(lambda message: None, boss)
    assert boss.results == [True]


def test_raising_requeues_with_backoff_and_is_logged(caplog):
    sent, tally, boss = handle(raising(ValueError("oops")))
    assert sent == [("REQ", None, True)]
    assert (tally.failed, tally.requeued, boss.results) == (1, 1, [False])
    assert "oops" in caplog.text


@pytest.mark.parametrize("give", [raising, lambda wish: lambda message: wish])
def test_requeue_raised_or_returned_says_how_and_is_no_failure(give, caplog):
    sent, tally, boss = handle(give(Requeue(7, backoff=False)))
    assert sent == [("REQ", 7, False)]
    assert (tally.failed, tally.requeued, boss.results) == (0, 1, [])
    sent, tally, boss = handle(give(Requeue(7)))
    assert boss.results == [False]
    assert caplog.text == ""


def test_false_requeues():
    sent, tally, _ = handle(lambda message: False)
    assert sent == [("REQ", None, True)]
    assert tally.requeued == 1


def test_an_awaitable_or_a_generator_did_not_run(caplog):
    async def awaitable(message: Message) -> None: ...

    def generator(message: Message):
        yield

    for handler in (awaitable, generator):
        sent, tally, _ = handle(handler)
        assert sent == [("REQ", None, True)]
        assert tally.finished == 0
    assert caplog.text.count("it did not run") == 2


def test_anything_else_is_success_and_said_once(caplog):
    source, boss = Source(), Boss()
    crew = Crew(lambda message: 42, boss, 0)
    crew.deliver([message_of(source) for _ in range(3)])
    assert source.sent == [("FIN",)] * 3
    assert caplog.text.count("taken for success") == 1


def test_what_the_handler_answered_is_not_answered_again():
    sent, _, _ = handle(lambda message: message.finish())
    assert sent == [("FIN",)]

    def then_fail(message: Message) -> None:
        message.finish()
        raise ValueError("afterwards")

    assert handle(then_fail)[0] == [("FIN",)]
    assert handle(lambda message: message.requeue(3))[0] == [("REQ", 3, True)]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_handler_that_wants_the_process_to_end_is_heard(error):
    sent, _, boss = handle(raising(error))
    assert boss.fatal == [error]
    assert sent == [("REQ", None, True)]


def test_an_expired_message_is_not_handled():
    source = Source()
    source.heard_at -= 61
    handled = []
    sent, tally, _ = handle(handled.append, source=source)
    assert (handled, sent, tally.expired) == ([], [], 1)


def test_who_drains_gives_back_what_no_handler_has_seen():
    boss, handled = Boss(), []
    boss.draining = True
    sent, _, _ = handle(handled.append, boss)
    assert (handled, sent) == ([], [("REQ now", 0.0)])


def test_a_traced_message_is_logged_when_its_handler_starts_and_with_its_kind_of_error():
    assert (life_of(lambda message: None).events, life_of(print).error) == (["started"], None)
    assert life_of(raising(Requeue(7))).error is None
    failed = life_of(raising(ValueError("the body")))
    assert (failed.events, failed.error) == (["started"], "ValueError")


def test_a_traced_message_that_waited_too_long_is_logged_as_timed_out():
    source = Source()
    source.heard_at -= 61
    assert life_of(print, source).events == ["timed_out"]


def test_the_lane_learns_of_every_end():
    lane = Lane()
    source = Source(lane)
    handle(lambda message: None, source=source)
    handle(raising(ValueError()), source=source)
    boss = Boss()
    boss.draining = True
    handle(print, boss, source)
    assert lane.ended == [True, False, False]


def test_workers_handle_side_by_side_and_end_when_dismissed():
    boss, source = Boss(), Source()
    together = threading.Barrier(4, timeout=10)
    crew = Crew(lambda message: together.wait() and None, boss, 4)
    crew.start()
    crew.deliver([message_of(source) for _ in range(8)])
    crew.dismiss()
    assert crew.join(monotonic() + 10) == []
    assert sum(tally.finished for tally in crew.tallies) == 8
    assert not any(thread.is_alive() for thread in crew._threads)


def test_whose_handler_still_runs_at_the_deadline_is_named():
    go_on = threading.Event()
    boss, source = Boss(), Source()
    crew = Crew(lambda message: go_on.wait(10) and None, boss, 1)
    crew.start()
    crew.deliver([message_of(source)])
    eventually(lambda: crew.tallies and crew.tallies[0].current)
    crew.dismiss()
    assert len(crew.join(monotonic() + 0.02)) == 1
    go_on.set()
    assert crew.join(monotonic() + 5) == []


def test_only_the_handlers_own_thread_is_handling():
    seen = []
    crew = Crew(lambda message: seen.append(crew.is_handling()), Boss(), 0)
    assert not crew.is_handling()
    crew.deliver([message_of(Source())])
    assert seen == [True]
    assert not crew.is_handling()


def test_acknowledgements_leave_when_there_is_no_more_work():
    class Outbox:
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1

    outbox = Outbox()
    crew = Crew(lambda message: crew.dirty.append(outbox), Boss(), 1)
    crew.start()
    crew.deliver([message_of(Source())])
    eventually(lambda: outbox.flushed == 1)
    crew.dismiss()
    crew.join(monotonic() + 5)
