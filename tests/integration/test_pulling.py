"""A consumer without a handler: the application takes messages and answers them."""

from __future__ import annotations

import threading
from collections import Counter
from time import monotonic

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import ClientClosed, ConfigError, NotAuthorized
from tests.helpers import eventually
from tests.integration.consuming import Handled, all_finished, channels, numbered, publish
from tests.interrupts import calling_at


@pytest.fixture(params=["original", "redesigned"])
def cluster(request):
    with Cluster(dialect=request.param, nsqds=2, lookupds=1) as made:
        made.create_topic("t", **({"partitions": 2} if request.param == "redesigned" else {}))
        made.create_channel("t", "c")
        yield made


@pytest.fixture
def ordered():
    with Cluster(nsqds=1, lookupds=1) as made:
        made.create_topic("t", partitions=1, ordered=True)
        made.create_channel("t", "c")
        yield made


def pull(cluster: Cluster, **options) -> nsqsmart.Consumer:
    return nsqsmart.Consumer("t", "c", address=cluster.url, **options)


def test_nothing_is_answered_for_you(cluster):
    publish(cluster, *numbered(10))
    with pull(cluster) as consumer:
        found: list[nsqsmart.Message] = []
        while len(found) < 10:
            found += consumer.poll(max_messages=4, timeout=10)
        assert sum(one["in_flight_count"] for one in channels(cluster)) == 10
        assert consumer.poll(timeout=0) == []
        for message in found[:9]:
            assert message.finish()
        assert found[9].requeue(0, backoff=False)
        (again,) = consumer.poll(timeout=10)
        assert (again.body, again.attempts) == (found[9].body, 2)
        again.finish()
        all_finished(cluster)
        assert consumer.stats() == nsqsmart.CloseReport(10, 1, 0)
    assert Counter(message.body for message in found) == Counter(numbered(10))


def test_no_more_come_than_are_asked_for(cluster):
    publish(cluster, *numbered(10))
    with pull(cluster) as consumer:
        eventually(lambda: consumer._runtime.dispatcher.inbox.qsize() == 10)
        assert len(consumer.poll()) == 1
        assert len(consumer.poll(3)) == 3
        assert len(consumer.poll(100)) == 6


def test_a_poll_waits_as_long_as_it_was_told(cluster):
    with pull(cluster) as consumer:
        started = monotonic()
        assert consumer.poll(timeout=0.2) == []
        assert monotonic() - started >= 0.2
        for wrong, error in [(0, ConfigError), ("1", TypeError)]:
            with pytest.raises(error, match="max_messages"):
                consumer.poll(wrong)
        with pytest.raises(ConfigError, match="timeout"):
            consumer.poll(timeout=-1)


def test_iterating_ends_when_it_is_closed(cluster):
    publish(cluster, *numbered(20))
    bodies: list[bytes] = []
    with pull(cluster) as consumer:
        for message in consumer:
            with message:
                bodies.append(message.body)
                if len(bodies) == 20:
                    consumer.close()
    assert sorted(bodies) == sorted(numbered(20))
    assert consumer.join(5)
    # The last one too, whose block was still running.
    all_finished(cluster)
    assert len(cluster.log.of("FIN")) == 20


def test_several_threads_may_iterate(cluster):
    publish(cluster, *numbered(60))
    bodies: list[bytes] = []
    with pull(cluster, max_in_flight=10) as consumer:

        def work() -> None:
            for message in consumer:
                with message:
                    bodies.append(message.body)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        all_finished(cluster)
        consumer.close()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
    assert Counter(bodies) == Counter(numbered(60))


def test_a_block_that_raises_requeues_and_slows_down(cluster):
    publish(cluster, b"x")
    options = {"backoff_multiplier": 0.1, "default_requeue_delay": 0}
    with pull(cluster, rdy_redistribute_interval=0.05, **options) as consumer:
        (message,) = consumer.poll(timeout=10)
        with pytest.raises(ValueError, match="oops"), message:
            raise ValueError("oops")
        assert consumer.health().reasons == ("backs off after failures",)
        (message,) = consumer.poll(timeout=10)
        with message:
            raise nsqsmart.Requeue(0, backoff=False)
        (message,) = consumer.poll(timeout=10)
        with message:
            assert message.attempts == 3
        eventually(lambda: consumer.health().state == "ready")
        all_finished(cluster)


def test_in_order_the_next_comes_when_the_one_before_is_answered(ordered):
    publish(ordered, *numbered(5), partition=0)
    with pull(ordered) as consumer:
        (first,) = consumer.poll(10, timeout=10)
        assert consumer.poll(10, timeout=0.2) == []
        first.requeue(0)
        bodies = [first.body]
        while len(bodies) < 6:
            (message,) = consumer.poll(10, timeout=10)
            bodies.append(message.body)
            message.finish()
        all_finished(ordered)
    assert bodies == [b"0", *numbered(5)]


def test_what_was_not_answered_goes_back_at_close(cluster):
    publish(cluster, *numbered(6))
    with pull(cluster) as consumer:
        eventually(lambda: consumer._runtime.dispatcher.inbox.qsize() == 6)
        taken = consumer.poll(2)
    assert [message.finish() for message in taken] == [False, False]
    assert consumer.stats() == nsqsmart.CloseReport(0, 6, 0)
    handled = Handled()
    with nsqsmart.Consumer("t", "c", handled, address=cluster.url):
        eventually(lambda: len(handled.messages) == 6)


def test_close_waits_for_blocks_of_other_threads(cluster):
    publish(cluster, b"x")
    entered, leave = threading.Event(), threading.Event()
    with pull(cluster) as consumer:

        def work() -> None:
            for message in consumer:
                with message:
                    entered.set()
                    assert leave.wait(10)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert entered.wait(10)
        closer = threading.Thread(target=consumer.close)
        closer.start()
        eventually(lambda: cluster.log.of("CLS"))
        assert closer.is_alive()
        leave.set()
        closer.join(10)
        thread.join(10)
    assert consumer.close() == nsqsmart.CloseReport(1, 0, 0)
    all_finished(cluster)


def test_a_block_that_does_not_end_is_named(cluster):
    publish(cluster, b"x")
    entered, leave = threading.Event(), threading.Event()
    answers: list[bytes] = []
    consumer = pull(cluster).start()

    def work() -> None:
        for message in consumer:
            with message:
                answers.append(message.id)
                entered.set()
                assert leave.wait(10)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert entered.wait(10)
    assert consumer.close(timeout=0.1).abandoned == tuple(answers)
    leave.set()
    thread.join(10)
    assert not cluster.log.of("FIN")


def give_back(message: nsqsmart.Message) -> None:
    message.touch()
    message.requeue(0, backoff=False)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("call", [nsqsmart.Message.finish, give_back])
def test_a_signal_handler_may_close_the_consumer_whose_call_it_interrupts(cluster, call):
    """Whatever lock the interrupted call has."""

    def interrupt_at(position: int) -> int:
        reports: list[nsqsmart.CloseReport] = []
        with pull(cluster, max_in_flight=4) as consumer:
            (message,) = consumer.poll(timeout=10)
            with calling_at(position, lambda: reports.append(consumer.close())) as places:
                call(message)
            # What is yet to be sent differs a little, and so does how many places there are.
            assert not reports or consumer.join(10)
        return places.passed

    def interrupt_everywhere() -> None:
        places = interrupt_at(0)
        assert places > 10
        for position in range(1, places + 1):
            interrupt_at(position)
        done.append(True)

    done: list[bool] = []
    publish(cluster, *numbered(200))
    thread = threading.Thread(target=interrupt_everywhere, daemon=True)
    thread.start()
    thread.join(150)
    assert done


def test_who_waits_is_woken_by_close(cluster):
    with pull(cluster) as consumer:
        found: list[list[nsqsmart.Message]] = []
        thread = threading.Thread(target=lambda: found.append(consumer.poll()), daemon=True)
        thread.start()
        eventually(lambda: consumer._runtime.dispatcher.thread_counts)
        consumer.close()
        thread.join(10)
        assert found == [[]]
        with pytest.raises(ClientClosed):
            consumer.poll()
        assert list(consumer) == []


def test_who_is_locked_out_hears_of_it(cluster):
    consumer = pull(cluster).start()
    cluster.faults.add(faults.on("SUB").reply("E_UNAUTHORIZED"))
    consumer._runtime.snapshot()[0].hang_up()
    with pytest.raises(NotAuthorized):
        consumer.poll(timeout=20)
    with pytest.raises(NotAuthorized):
        consumer.join(10)


def test_what_can_be_pulled_from(cluster):
    with pytest.raises(RuntimeError, match="was not started"):
        pull(cluster).poll()
    with pytest.raises(RuntimeError, match="was not started"):
        next(iter(pull(cluster)))
    with (
        nsqsmart.Consumer("t", "c", print, address=cluster.url) as consumer,
        pytest.raises(RuntimeError, match="has a handler"),
    ):
        consumer.poll()
