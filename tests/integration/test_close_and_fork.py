"""How clients end, and what a child process may use: nothing is lost, shared or left behind."""

from __future__ import annotations

import pickle
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from time import monotonic

import pytest

import nsqsmart
from nsqsmart.client.consuming import consumer as consumer_module
from nsqsmart.client.consuming import runtime as closing_module
from nsqsmart.client.consuming.runtime import RunningConsumer
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import ClientClosed, Outcome, PublishFailed
from tests.conftest import open_sockets, our_threads
from tests.helpers import eventually
from tests.integration.consuming import Handled, all_finished, channels, numbered, publish
from tests.interrupts import calling_at
from tests.scripts import Program, programs


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nsqds=2, lookupds=1) as made:
        made.create_topic("t", partitions=2)
        made.create_channel("t", "c")
        yield made


def consume(cluster: Cluster, handler, **options) -> nsqsmart.Consumer:
    return nsqsmart.Consumer("t", "c", handler, address=cluster.url, **options)


class Gate:
    """A handler that waits to be let through."""

    def __init__(self) -> None:
        self.entered: list[nsqsmart.Message] = []
        self.open = threading.Event()

    def __call__(self, message: nsqsmart.Message) -> None:
        self.entered.append(message)
        assert self.open.wait(20)


def on_another_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


# --------------------------------------------------------------------------------- a consumer ends


@pytest.mark.parametrize("workers", [0, 2])
def test_close_lets_handlers_finish_and_gives_the_rest_back(cluster, workers):
    publish(cluster, *numbered(20))
    gate = Gate()
    consumer = consume(cluster, gate, workers=workers, rdy_mode="level").start()
    busy = workers or 2
    eventually(lambda: len(gate.entered) == busy)
    reports = []
    closing = threading.Thread(target=lambda: reports.append(consumer.close()))
    closing.start()
    eventually(lambda: consumer._runtime.draining)
    assert closing.is_alive()
    gate.open.set()
    closing.join(20)
    (report,) = reports
    assert report.clean
    assert report.finished == busy
    assert report.requeued > 0
    # Given back while the connection stood, not left to its end.
    eventually(lambda: len(cluster.log.of("REQ")) == report.requeued)
    # The next consumer gets the others at once: msg_timeout is a minute.
    handled = Handled()
    with consume(cluster, handled):
        eventually(lambda: len(handled.messages) == 20 - busy)
        all_finished(cluster)


def test_with_no_workers_a_close_waits_for_handlers_as_long(cluster, monkeypatch):
    """Their readers cannot hear what the server says to CLS."""
    monkeypatch.setattr(closing_module, "_CLOSE_WAIT", 0.0)
    publish(cluster, *numbered(2))
    gate = Gate()
    consumer = consume(cluster, gate, workers=0).start()
    eventually(lambda: len(gate.entered) == 2)
    reports = []
    closing = threading.Thread(target=lambda: reports.append(consumer.close()))
    closing.start()
    eventually(lambda: len(cluster.log.of("CLS")) == 2)
    closing.join(0.2)
    assert closing.is_alive()
    gate.open.set()
    closing.join(20)
    assert [(each.finished, each.clean) for each in reports] == [(2, True)]


def test_close_leaves_no_thread_and_no_socket(cluster):
    threads = client_threads()
    sockets = open_sockets()
    consumer = consume(cluster, lambda message: None).start()
    publish(cluster, *numbered(10))
    assert client_threads() > threads
    consumer.close()
    assert client_threads() == threads
    # The servers' ends go as soon as they notice.
    eventually(lambda: open_sockets() <= sockets)
    eventually(lambda: not any(one["client_num"] for one in channels(cluster)))


def client_threads() -> set[threading.Thread]:
    """Ours, but for the embedded servers'."""
    return {each for each in our_threads() if not each.name.startswith("nsqsmart-embedded")}


def test_close_from_a_handler_answers_its_message(cluster):
    publish(cluster, b"last")
    handled = Handled()

    def handler(message: nsqsmart.Message) -> None:
        consumer.close()
        handled(message)

    consumer = consume(cluster, handler)
    consumer.start()
    assert consumer.join(20)
    assert handled.bodies() == [b"last"]
    all_finished(cluster)
    assert len(cluster.log.of("FIN")) == 1


def test_a_handler_that_does_not_end_is_left_behind_and_named(cluster):
    publish(cluster, b"stuck")
    gate = Gate()
    consumer = consume(cluster, gate).start()
    eventually(lambda: gate.entered)
    started = monotonic()
    report = consumer.close(timeout=0.1)
    assert monotonic() - started < 5
    assert report.abandoned == (gate.entered[0].id,)
    assert not report.clean
    gate.open.set()
    eventually(lambda: not client_threads())
    eventually(lambda: len(cluster.log.of("REQ")) == 1)
    assert not cluster.log.of("FIN")
    # It was given back, so no consumer waits for its timeout.
    handled = Handled()
    with consume(cluster, handled):
        eventually(lambda: handled.bodies() == [b"stuck"])


def test_a_second_close_with_less_time_does_not_end_the_first(cluster):
    publish(cluster, b"x")
    gate = Gate()
    consumer = consume(cluster, gate).start()
    eventually(lambda: gate.entered)
    closing = on_another_thread(consumer.close)
    eventually(lambda: consumer._runtime.draining)
    assert consumer.close(timeout=0).finished == 0
    assert not consumer.has_ended()
    gate.open.set()
    closing.join(20)
    assert consumer.close(timeout=0).finished == 1
    assert consumer.join(0)


def test_a_close_that_fails_is_over_all_the_same(cluster, monkeypatch):
    """A thread that waits for it is woken."""

    def fail(*_given: object) -> None:
        raise ValueError("oops")

    told: list[object] = []
    consumer = consume(cluster, print)
    consumer.on_end(told.append)
    consumer.start()
    monkeypatch.setattr(RunningConsumer, "drain", fail)
    with pytest.raises(ValueError, match="oops"):
        consumer.close()
    monkeypatch.undo()
    consumer._runtime.drain(monotonic() + 10)
    assert consumer.join(0)
    assert told == [None]


def test_close_may_be_called_by_many_and_again(cluster):
    consumer = consume(cluster, lambda message: None).start()
    threads = [threading.Thread(target=consumer.close) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert consumer.close() == consumer.close()
    assert consumer.join(0)


def test_a_consumer_closes_before_it_was_started():
    consumer = nsqsmart.Consumer("t", "c", print, address="nsq://127.0.0.1:1")
    consumer.close()
    with pytest.raises(ClientClosed):
        consumer.start()


@pytest.mark.parametrize("where", [(consumer_module, "open_endpoint"), (RunningConsumer, "start")])
def test_who_closes_a_consumer_that_starts_ends_it(cluster, monkeypatch, where):
    """Before there is anything to end, and before any thread has begun."""
    consumer = consume(cluster, lambda message: None)
    go_on = getattr(*where)

    def closed_before(given: object) -> object:
        on_another_thread(consumer.close).join(20)
        return go_on(given)

    monkeypatch.setattr(*where, closed_before)
    with pytest.raises(ClientClosed):
        consumer.start()
    assert consumer.has_ended()
    assert not client_threads()
    assert not cluster.log.of("SUB")


def test_who_closes_a_consumer_that_waits_for_its_servers_ends_that(cluster, monkeypatch):
    monkeypatch.setattr(RunningConsumer, "_all_answered", lambda runtime: False)
    consumer = consume(cluster, lambda message: None, dial_timeout=60)
    starting = on_another_thread(consumer.start)
    eventually(lambda: len(cluster.log.of("SUB")) == 2)
    consumer.close()
    starting.join(20)
    assert not starting.is_alive()
    assert not client_threads()


def test_a_signal_handler_may_close_a_consumer_that_starts(cluster):
    """Wherever start() is: it holds locks, its own and those of threads that it makes."""
    for position in count(1, 15):
        consumer = consume(cluster, lambda message: None)
        with calling_at(position, consumer.close) as places:
            consumer.start()
        if places.passed < position:
            consumer.close()
            break
        assert consumer.join(10)
    assert position > 150
    assert not client_threads()


def test_one_that_cannot_reach_anybody_closes_at_once():
    address = "nsq+lookupd://127.0.0.1:1"
    consumer = nsqsmart.Consumer("t", "c", print, address=address).start()
    started = monotonic()
    assert consumer.close().clean
    assert monotonic() - started < 5


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_handler_that_ends_the_process_ends_run(cluster, error):
    publish(cluster, b"x")

    def handler(message: nsqsmart.Message) -> None:
        raise error

    with pytest.raises(type(error)):
        consume(cluster, handler).run()
    eventually(lambda: len(cluster.log.of("REQ")) == 1)


# --------------------------------------------------------------------------------- a producer ends


def test_a_closed_producer_says_so(cluster):
    producer = nsqsmart.Producer(cluster.url)
    producer.publish("t", b"x")
    producer.close()
    producer.close()
    with pytest.raises(ClientClosed):
        producer.publish("t", b"y")


def test_close_waits_for_a_publish_under_way(cluster):
    cluster.faults.add(faults.on("PUB").delay(0.3))
    producer = nsqsmart.Producer(cluster.url)
    receipts = []
    thread = threading.Thread(target=lambda: receipts.append(producer.publish("t", b"x")))
    thread.start()
    eventually(lambda: cluster.log.of("PUB"))
    producer.close()
    thread.join(5)
    assert [receipt.attempts for receipt in receipts] == [1]


def test_who_waits_for_a_turn_when_it_closes_has_sent_nothing(cluster):
    cluster.faults.add(faults.on("PUB").stall())
    producer = nsqsmart.Producer(cluster.url)
    failures: dict[bytes, PublishFailed] = {}

    def send(body: bytes) -> None:
        with pytest.raises(PublishFailed) as caught:
            producer.publish("t", body, key="k", timeout=20)
        failures[body] = caught.value

    threads = [threading.Thread(target=send, args=(body,)) for body in (b"first", b"second")]
    threads[0].start()
    eventually(lambda: cluster.log.of("PUB"))
    threads[1].start()
    eventually(lambda: producer.stats()["turns_waiting"] == 1)
    producer.close(timeout=0)
    for thread in threads:
        thread.join(10)
    assert isinstance(failures[b"second"].__cause__, ClientClosed)
    assert failures[b"second"].outcome is Outcome.NOT_SENT
    assert failures[b"first"].outcome is Outcome.UNCERTAIN


def consume_of(url: str) -> nsqsmart.Consumer:
    return nsqsmart.Consumer("t", "c", print, address=url)


@pytest.mark.parametrize("make", [nsqsmart.Producer, consume_of])
def test_no_client_can_be_pickled(make):
    client = make("nsq://127.0.0.1:4150")
    with pytest.raises(TypeError, match="make it inside the function"):
        pickle.dumps(client)


# --------------------------------------------------------- processes: forks, signals, and the end


@pytest.fixture
def program(cluster) -> Iterator[Callable[[str], Program]]:
    with programs(cluster.url) as begin:
        yield begin


def test_a_child_publishes_on_connections_of_its_own(cluster, program):
    script = program("""
        producer = nsqsmart.Producer(url)
        def publish(body):
            print(body, producer.publish("t", body.encode(), partition=0).attempts)
        publish("before")
        child = os.fork()
        if child == 0:
            publish("child")
            producer.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        publish("parent")
        producer.close()
    """)
    assert script.ends() == (0, "before 1\nchild 1\nparent 1\n", "")
    before, child, parent = [entry.connection for entry in cluster.log.of("PUB")]
    assert before == parent
    assert child != before
    assert [each.body for each in cluster.stored("t", 0)] == [b"before", b"child", b"parent"]


def test_children_may_be_made_while_threads_publish(cluster, program):
    """No child inherits a lock that a thread held, or an answer to another process."""
    script = program("""
        producer = nsqsmart.Producer(url, pool_size=2)
        stop = threading.Event()
        def work():
            while not stop.is_set():
                producer.publish("t", b"thread", key="k", timeout=10)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads: thread.start()
        children = []
        for number in range(10):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    for turn in range(3):
                        trace_id = 1000 * number + turn + 1
                        found = producer.publish(
                            "t", b"child", key="k", trace_id=trace_id, timeout=10)
                        assert found.trace_id == trace_id
                    code = 0
                finally:
                    os._exit(code)
            children.append(child)
        print([os.waitpid(child, 0)[1] for child in children])
        stop.set()
        for thread in threads: thread.join()
        producer.close()
    """)
    code, out, _ = script.ends()
    assert (code, out) == (0, f"{[0] * 10}\n")
    assert Counter(each.body for each in cluster.stored("t"))[b"child"] == 30


def test_a_consumer_belongs_to_its_process_until_it_is_started_anew(cluster, program):
    script = program("""
        seen = threading.Event()
        def handler(message):
            seen.set()
        consumer = nsqsmart.Consumer("t", "c", handler, address=url, max_in_flight=2)
        consumer.start()
        import warnings
        # CPython 3.12 and later warn of every fork beside threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            try:
                for call in (consumer.stats, consumer.close, consumer.is_starved, consumer.join,
                             consumer.pause, consumer.health, consumer.poll,
                             lambda: consumer.set_max_in_flight(3)):
                    try:
                        call()
                    except nsqsmart.errors.UsedAfterFork:
                        print("refused")
                # A lock that a thread of the parent held would be held here for ever.
                seen = threading.Event()
                consumer.start()
                print("child")
                seen.wait()
                consumer.close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        print("parent")
        seen.clear()
        seen.wait()
        consumer.close()
    """)
    assert [script.line() for _ in range(9)] == ["refused"] * 8 + ["child"]

    def said(word: str) -> None:
        """Publish until the script has got something and says *word*."""
        heard: list[str] = []
        thread = threading.Thread(target=lambda: heard.append(script.line()))
        thread.start()
        while thread.is_alive():
            publish(cluster, *numbered(4))
            thread.join(0.05)
        assert heard == [word]

    said("parent")
    said("")
    assert script.ends() == (0, "", "")


CONSUMER = """
    def handler(message):
        print("handling")
        time.sleep({seconds})
        print("handled")
    consumer = nsqsmart.Consumer("t", "c", handler, address=url)
    report = consumer.run()
    print(report.finished, report.clean, signal.getsignal(signal.SIGINT).__name__)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_and_the_second_one_does_not_wait(cluster, program, number):
    publish(cluster, b"x")
    patient = program(CONSUMER.format(seconds=0.3))
    assert patient.line() == "handling"
    patient.signal(number)
    assert patient.ends() == (0, "handled\n1 True default_int_handler\n", "")
    all_finished(cluster)
    publish(cluster, b"y")
    stuck = program(CONSUMER.format(seconds=60))
    assert stuck.line() == "handling"
    stuck.signal(number)
    eventually(lambda: len(cluster.log.of("CLS")) >= 4)
    stuck.signal(number)
    code, out, err = stuck.ends()
    assert code not in (0, None)
    assert "handled" not in out
    assert "KeyboardInterrupt" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_several_at_once(cluster, program, number):
    cluster.create_channel("t", "d")
    publish(cluster, b"x")
    script = program("""
        together = threading.Barrier(3)
        def handler(message):
            together.wait()
            # It runs until the signal has reached all of them.
            while not all(each._runtime.draining for each in consumers):
                pause.wait(0.005)
        pause = threading.Event()
        consumers = [nsqsmart.Consumer("t", name, handler, address=url) for name in "cd"]
        def tell():
            together.wait()
            print("handling")
        threading.Thread(target=tell).start()
        reports = nsqsmart.run(*consumers)
        print([report.finished for report in reports], signal.getsignal(signal.SIGINT).__name__)
    """)
    assert script.line() == "handling"
    script.signal(number)
    assert script.ends() == (0, "[1, 1] default_int_handler\n", "")
    all_finished(cluster)


def test_ctrl_c_ends_a_loop_that_pulls(cluster, program):
    publish(cluster, b"x")
    script = program("""
        with nsqsmart.Consumer("t", "c", address=url) as consumer:
            try:
                for message in consumer:
                    with message:
                        print("handling")
            except KeyboardInterrupt:
                print(consumer.close().finished)
    """)
    assert script.line() == "handling"
    all_finished(cluster)
    script.signal(signal.SIGINT)
    assert script.ends() == (0, "1\n", "")


def test_an_interrupted_publish_leaves_a_producer_that_works(cluster, program):
    cluster.faults.add(faults.on("PUB").stall())
    script = program("""
        producer = nsqsmart.Producer(url)
        try:
            producer.publish("t", b"x", key="k")
        except KeyboardInterrupt:
            print("interrupted")
        print(producer.publish("t", b"y", key="k", trace_id=7, timeout=10).trace_id)
    """)
    eventually(lambda: cluster.log.of("PUB"))
    script.signal(signal.SIGINT)
    assert script.ends() == (0, "interrupted\n7\n", "")


@pytest.mark.parametrize(
    "code",
    [
        'nsqsmart.Producer(url).publish("t", b"x")',
        'nsqsmart.Consumer("t", "c", print, address=url).start()',
    ],
)
def test_a_program_that_forgets_to_close_ends_in_silence(program, code):
    assert program(code).ends() == (0, "", "")
