"""Unplanned ends: exits inside handlers, dying threads, and programs that just stop."""

from __future__ import annotations

import ctypes
import json
import logging
import threading
from collections.abc import Callable

import pytest

import nsqsmart
from nsqsmart.errors import ClientClosed
from nsqsmart.wire.frames import HEARTBEAT_FRAME
from tests.encoding import CLOSE_WAIT_FRAME
from tests.helpers import eventually
from tests.integration.consuming import Handled
from tests.peers import Peer, Talk, message_frame, subscribed
from tests.scripts import programs

QUICK = {"lookupd_poll_interval": 0.1, "lookupd_min_refresh_interval": 0.05}
NOWHERE = "nsq+lookupd://127.0.0.1:1"


def consume(url: str, handler, **options):
    return nsqsmart.Consumer("t", "c", handler, address=url, **(QUICK | options))


class Own(BaseException):
    """No Exception, and nothing that Python knows."""


# ----------------------------------------------------------------- what ends a handler, and a run


def test_an_exception_of_a_handler_is_logged_with_its_stack_and_slows_down(caplog):
    said: list[bytes] = []

    def wrong(message: nsqsmart.Message) -> None:
        raise ValueError("of mine")

    options = {"default_requeue_delay": 0.5, "backoff_multiplier": 0.05, "close_timeout": 0.1}
    frame = message_frame(1, b"iban DE02 1203", attempts=3)
    with Peer(subscribed(said.append, frame)) as nsqd, consume(nsqd.url, wrong, **options):
        eventually(lambda: any(line.startswith(b"REQ ") for line in said))
        # 0.5 s for each attempt; RDY 0 goes first: nothing comes while it backs off.
        rest = said[[line.startswith(b"RDY ") for line in said].index(True) + 1 :]
        assert rest[:2] == [b"RDY 0", b"REQ " + (1).to_bytes(16, "big") + b" 1500"]
        # Then one message is asked for.
        eventually(lambda: b"RDY 1" in said[said.index(b"RDY 0") :])
    (record,) = [each for each in caplog.records if "handler failed" in each.getMessage()]
    assert record.levelno == logging.ERROR
    shown = logging.Formatter().format(record)
    assert "in wrong" in shown
    assert "ValueError: of mine" in shown
    assert "DE02" not in shown


ENDS = [SystemExit(3), SystemExit("said"), KeyboardInterrupt(), GeneratorExit(), Own()]


@pytest.mark.parametrize("error", ENDS, ids=repr)
@pytest.mark.parametrize("way", ["workers", "reader", "batches"])
def test_what_is_no_exception_ends_run_and_gives_the_message_back(error, way):
    said: list[bytes] = []

    def handler(_given: object) -> None:
        raise error

    told = {"batch_handler": handler} if way == "batches" else {"handler": handler}
    options = QUICK | {"workers": 0 if way == "reader" else 2, "batch_max_delay": 0.01}
    with Peer(subscribed(said.append, message_frame(1))) as nsqd:
        consumer = nsqsmart.Consumer("t", "c", address=nsqd.url, **told, **options)
        with pytest.raises(type(error)) as caught:
            consumer.run()
        assert caught.value is error
        assert b"REQ " + (1).to_bytes(16, "big") + b" 0" in said
        assert not any(line.startswith(b"FIN") for line in said)
        # In order: nothing new comes, and the server has heard all.
        assert said.index(b"RDY 0") < said.index(b"CLS")
        with pytest.raises(ClientClosed):
            consumer.start()


def test_sys_exit_in_a_worker_is_the_exit_code_of_the_process():
    """A thread of one's own would swallow it."""
    with (
        Peer(subscribed(lambda _line: None, message_frame(1))) as nsqd,
        programs(nsqd.url) as program,
    ):
        script = program("""
            def handler(message):
                assert threading.current_thread() is not threading.main_thread()
                sys.exit(7)
            nsqsmart.Consumer("t", "c", handler, address=url, workers=2).run()
        """)
        code, _, said = script.ends()
    assert code == 7
    assert "SystemExit: 7" in said  # of the record of the failed handler


# --------------------------------------------------------------- callbacks that hang, and threads


def test_a_callback_that_hangs_keeps_the_server_from_forgetting(caplog):
    """No FIN for a message that was not taken over; its time runs out, and the others go on."""
    said: list[bytes] = []
    release = threading.Event()
    seen: list[nsqsmart.Message] = []
    grant = json.dumps({"version": "1.3.0", "msg_timeout": 300}).encode()

    def hang(message: nsqsmart.Message) -> None:
        seen.append(message)
        release.wait(30)

    def script(talk: Talk) -> None:
        talk.greet(grant)
        while True:
            line = talk.line()
            said.append(line)
            if line.startswith(b"SUB"):
                talk.ok()
            elif line == b"CLS":
                talk.send(CLOSE_WAIT_FRAME)
            elif line.startswith(b"RDY ") and not seen:
                talk.send(message_frame(1, attempts=6) + message_frame(2, b"next"))

    handled = Handled()
    options = {"max_attempts": 5, "on_giving_up": hang, "workers": 2, "close_timeout": 5}
    with Peer(script) as nsqd, consume(nsqd.url, handled, **options) as consumer:
        eventually(lambda: handled.bodies() == [b"next"])
        eventually(lambda: seen and seen[0].expired)
        given_up = b"FIN " + (1).to_bytes(16, "big")
        assert given_up not in said
        release.set()
        eventually(lambda: consumer.stats().timed_out == 1)
        assert given_up not in said
        assert not seen[0].finished
    assert "was not answered in time" in caplog.text


def test_close_leaves_a_callback_behind_that_hangs():
    release, entered = threading.Event(), threading.Event()

    def hang(_message: nsqsmart.Message) -> None:
        entered.set()
        release.wait(30)

    options = {"max_attempts": 5, "on_giving_up": hang, "workers": 1}
    said: list[bytes] = []
    try:
        with Peer(subscribed(said.append, message_frame(1, attempts=6))) as nsqd:
            consumer = consume(nsqd.url, print, **options).start()
            assert entered.wait(10)
            report = consumer.close(timeout=0.1)
            assert not report.clean
            assert not any(line.startswith(b"FIN") for line in said)
    finally:
        release.set()
    eventually(lambda: not [each for each in threading.enumerate() if "worker" in each.name])


def test_a_reader_that_an_exception_of_another_thread_ends_is_replaced(caplog):
    """Wherever it strikes: the connection is made anew, and messages come again."""
    step = threading.Semaphore(0)

    def script(talk: Talk) -> None:
        talk.greet()
        talk.line()
        talk.ok()
        talk.line()
        talk.send(message_frame(1, b"%d" % nsqd.accepted))
        while not step.acquire(timeout=0.05):
            if talk.released.is_set():
                return
        talk.send(HEARTBEAT_FRAME * 3)
        talk.stall()

    handled = Handled()
    rounds = 3
    with Peer(script) as nsqd, consume(nsqd.url, handled, close_timeout=0.1) as consumer:
        for number in range(1, rounds + 1):
            eventually(lambda count=number: len(handled.messages) == count, 5)
            (subscription,) = consumer._runtime.snapshot()
            thread = ctypes.c_ulong(subscription._thread.ident)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(Own))
            step.release()
        eventually(lambda: len(handled.messages) == rounds + 1)
        eventually(lambda: consumer.health().state == "ready")
        assert handled.bodies() == [b"%d" % number for number in range(1, rounds + 2)]
    assert caplog.text.count("reading t/c at") == rounds


# ------------------------------------------------------------------------------- after the end


def refused(call: Callable[[], object], kind: type[BaseException] = ClientClosed) -> None:
    with pytest.raises(kind):
        call()


def test_a_closed_producer_takes_nothing_in_any_way():
    producer = nsqsmart.Producer("nsq://127.0.0.1:1")
    assert producer.close() is producer.close(timeout=0)
    calls = {
        "publish": lambda: producer.publish("t", b"x"),
        "keyed": lambda: producer.publish("t", b"x", key="k"),
        "many": lambda: producer.publish_many("t", [b"x"]),
        "json": lambda: producer.publish_json("t", {}),
        "async": lambda: producer.publish_async("t", b"x"),
        "warm": lambda: producer.warm("t"),
        "ping": producer.ping,
    }
    for call in calls.values():
        refused(call)
    assert producer.health().state == "closed"


def test_a_consumer_starts_once():
    consumer = consume(NOWHERE, print).start()
    with pytest.raises(RuntimeError, match="started before"):
        consumer.start()
    consumer.close()
    for again in (consumer.start, consumer.run, consumer.__enter__):
        refused(again)
    consumer = consume(NOWHERE, print)
    consumer.close()
    for call in (consumer.start, consumer.run, consumer.__enter__):
        refused(call)
    pulled = nsqsmart.Consumer("t", "c", address=NOWHERE, **QUICK)
    refused(lambda: pulled.poll(timeout=0), RuntimeError)
    with pulled:
        assert pulled.poll(timeout=0) == []
    refused(lambda: pulled.poll(timeout=0))


# ------------------------------------------------------------------ programs that forget to close


def test_a_program_ends_with_its_code_whatever_its_clients_are_doing():
    """A handler hangs, another backs off, a publish waits for its answer, a dial goes on."""

    def nsqd(talk: Talk) -> None:
        talk.greet()
        line = talk.line()
        if line.startswith(b"PUB"):
            talk.body()
            talk.stall()
        talk.ok()
        talk.line()
        talk.send(message_frame(1))
        talk.stall()

    with Peer(nsqd) as peer, programs(peer.url) as program:
        script = program("""
            import logging
            logging.getLogger("nsqsmart").setLevel(logging.CRITICAL)
            entered = threading.Semaphore(0)
            def hang(message):
                entered.release()
                threading.Event().wait()
            def fail(message):
                entered.release()
                raise ValueError("no")
            def publish(way):
                entered.release()
                try:
                    way("t", b"x", timeout=60)
                except nsqsmart.errors.NsqError:
                    pass  # the process ends
            producer = nsqsmart.Producer(url, close_timeout=60)
            idle = nsqsmart.Producer(url)
            kept = [
                nsqsmart.Consumer("t", "c", hang, address=url).start(),
                nsqsmart.Consumer("t", "c", fail, address=url, backoff_multiplier=30).start(),
                nsqsmart.Consumer("t", "c", address=url).start(),
                nsqsmart.Consumer("t", "c", print, address="nsq+lookupd://127.0.0.1:1").start(),
            ]
            threading.Thread(target=publish, args=(producer.publish,), daemon=True).start()
            pending = producer.publish_async("t", b"y")
            for _ in range(3):
                entered.acquire()
            print("begun")
            sys.exit(7)
        """)
        assert script.line() == "begun"
        code, out, said = script.ends(timeout=12)
    assert (code, out) == (7, "")
    # One line at most, of what was on its way.
    assert said.count("\n") <= 1
    assert "Traceback" not in said
