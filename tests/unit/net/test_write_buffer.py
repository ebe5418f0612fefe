"""What a subscribed connection sends: combined, nothing lost, RDY as a level."""

from __future__ import annotations

import itertools
import random
import re
import ssl
import threading
from contextlib import contextmanager
from time import monotonic

import pytest

from nsqsmart.errors import ConnectionLost
from nsqsmart.net.write_buffer import WriteBuffer
from nsqsmart.wire import commands
from tests.helpers import eventually


class Cancellable:
    """Stands for socket and transport: notes every write; takes as much as it is told."""

    def __init__(self) -> None:
        self.layers: tuple = ()
        self.socket = self
        self.writes: list[bytes] = []
        self.room: int | None = None
        self.error: OSError | None = None
        self.hung_up = self.dropped = False
        self._one_at_a_time = threading.Lock()

    @property
    def sent(self) -> bytes:
        return b"".join(self.writes)

    def write(self, data: bytes) -> None:
        assert self._one_at_a_time.acquire(blocking=False), "two writers at once"
        try:
            if self.error:
                raise self.error
            self.writes.append(bytes(data))
        finally:
            self._one_at_a_time.release()

    def try_send(self, data: bytes) -> int:
        if self.room is None:
            self.write(data)
            return len(data)
        count = min(self.room, len(data))
        self.room -= count
        self.write(data[:count])
        return count

    def hang_up(self) -> None:
        self.hung_up = True

    def drop(self) -> None:
        self.dropped = True


def fin(number: int) -> bytes:
    return commands.fin(number.to_bytes(16, "big"))


def ident(number: int) -> bytes:
    return number.to_bytes(16, "big")


@pytest.fixture
def wire() -> Cancellable:
    return Cancellable()


@pytest.fixture
def dirty() -> list[WriteBuffer]:
    return []


@pytest.fixture
def write_buffer(wire, dirty) -> WriteBuffer:
    return WriteBuffer(wire, dirty.append)


def test_acknowledgements_gather_until_half_of_rdy(write_buffer, wire, dirty):
    write_buffer.rdy = 10
    write_buffer.flush()
    assert wire.writes == [b"RDY 10\n"]
    for number in range(4):
        write_buffer.ack(ident(number))
    assert len(wire.writes) == 1
    assert dirty == [write_buffer]
    write_buffer.ack(ident(4))
    assert wire.writes[1] == b"".join(map(fin, range(5)))
    assert write_buffer.settled == 5


def test_with_rdy_1_every_acknowledgement_leaves_at_once(write_buffer, wire):
    write_buffer.rdy = 1
    write_buffer.flush()
    write_buffer.ack(ident(0))
    assert wire.writes[1:] == [fin(0)]


def test_whatever_is_sent_takes_acknowledgements_along(write_buffer, wire):
    write_buffer.rdy = 100
    write_buffer.flush()
    write_buffer.ack(ident(0))
    write_buffer.send(commands.touch(ident(1)))
    assert wire.writes[1:] == [fin(0) + commands.touch(ident(1))]


def test_rdy_goes_first_and_only_when_it_changed(write_buffer, wire):
    write_buffer.rdy = 100
    write_buffer.flush()
    write_buffer.ack(ident(0))
    write_buffer.rdy = 3
    write_buffer.flush()
    write_buffer.flush()
    write_buffer.rdy = 3
    write_buffer.flush()
    assert wire.writes == [b"RDY 100\n", b"RDY 3\n" + fin(0)]


def test_a_heartbeat_is_answered_by_nop_or_by_anything_else(write_buffer, wire):
    write_buffer.answer_heartbeat()
    assert wire.writes == [b"NOP\n"]
    write_buffer.rdy = 100
    write_buffer.flush()
    write_buffer.ack(ident(0))
    write_buffer.answer_heartbeat()
    assert wire.writes[1:] == [b"RDY 100\n", fin(0)]


def test_what_the_kernel_did_not_take_leaves_first_and_whole(write_buffer, wire, dirty):
    write_buffer.rdy = 100
    write_buffer.flush()
    for number in range(3):
        write_buffer.ack(ident(number))
    dirty.clear()
    wire.room = 5
    write_buffer.flush(wait=False)
    assert dirty == [write_buffer]
    assert write_buffer.dirty
    write_buffer.send(commands.touch(ident(9)))
    whole = b"RDY 100\n" + b"".join(map(fin, range(3))) + commands.touch(ident(9))
    assert wire.sent == whole


def test_who_is_told_that_something_waits_is_told_outside_the_send_lock(wire):
    free = []
    write_buffer = WriteBuffer(wire, lambda told: free.append(not told._lock.locked()))
    wire.room = 5
    write_buffer.rdy = 100
    write_buffer.flush(wait=False)
    assert free == [True]


def test_what_is_forgotten_is_settled_too(write_buffer):
    write_buffer.ack(ident(1))
    write_buffer.forget()
    assert write_buffer.settled == 2


def test_what_the_kernel_did_not_take_is_reason_enough_to_send(write_buffer, wire):
    wire.room = 2
    write_buffer.answer_heartbeat()
    assert wire.sent == commands.NOP[:2]
    write_buffer.flush()
    assert wire.sent == commands.NOP


def test_a_broken_socket_ends_it_for_good(write_buffer, wire):
    write_buffer.rdy = 1
    wire.error = ConnectionResetError("gone")
    write_buffer.flush()
    assert write_buffer.broken
    assert wire.hung_up
    wire.error = None
    write_buffer.ack(ident(0))
    write_buffer.send(b"X\n")
    write_buffer.answer_heartbeat()
    assert wire.writes == []


@pytest.mark.parametrize("error", [ssl.SSLError("shutdown"), ConnectionLost("TLS is broken")])
def test_a_layer_that_cannot_encode_ends_it_too(write_buffer, wire, error):
    def encode(data: bytes) -> bytes:
        raise error

    wire.layers, wire.encode = ("tls",), encode
    write_buffer.rdy = 1
    write_buffer.flush()
    assert write_buffer.broken
    assert wire.hung_up


@pytest.mark.parametrize("where", ["write", "try_send"])
def test_nothing_follows_what_an_interrupt_cut_off(write_buffer, wire, monkeypatch, where):
    real = getattr(wire, where)

    def cut(data: bytes) -> None:
        real(data[:7])
        raise KeyboardInterrupt

    write_buffer.rdy = 10
    write_buffer.flush()
    with monkeypatch.context() as interrupted:
        interrupted.setattr(wire, where, cut)
        write_buffer.ack(ident(1))
        with pytest.raises(KeyboardInterrupt):
            write_buffer.flush(wait=where == "write")
    assert (write_buffer.broken, wire.hung_up) == (True, True)
    before = wire.sent
    assert not write_buffer.ack(ident(2))
    write_buffer.send(b"NOP\n")
    assert wire.sent == before


def test_answers_are_counted_however_many_threads_give_them(write_buffer, wire):
    write_buffer.rdy = 50
    write_buffer.flush()

    def answer(base: int) -> None:
        for number in range(500):
            if number % 3:
                write_buffer.ack(ident(base + number))
            else:
                write_buffer.send(commands.req(ident(base + number)), settles=True)

    run_together(answer, [base * 1000 for base in range(8)])
    write_buffer.flush()
    assert write_buffer.settled == 4000


def run_together(target, arguments) -> None:
    threads = [threading.Thread(target=target, args=(each,)) for each in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_nothing_is_lost_doubled_or_torn_between_many_threads(wire):
    """Workers ack and requeue, the reader answers heartbeats, the flow moves RDY."""
    dirty: list[WriteBuffer] = []
    write_buffer = WriteBuffer(wire, dirty.append)
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.001):
            write_buffer.flush(wait=False)

    ticking = threading.Thread(target=tick)
    ticking.start()

    def work(base: int) -> None:
        chance = random.Random(base)
        for number in range(1000):
            choice = chance.random()
            if choice < 0.7:
                write_buffer.ack(ident(base + number))
            elif choice < 0.8:
                write_buffer.send(commands.req(ident(base + number), 5), settles=True)
            elif choice < 0.9:
                write_buffer.answer_heartbeat()
                write_buffer.ack(ident(base + number))
            else:
                write_buffer.rdy = chance.randrange(60)
                write_buffer.flush()
                write_buffer.ack(ident(base + number))

    run_together(work, [base * 10_000 for base in range(6)])
    write_buffer.rdy = 7
    write_buffer.flush()
    stop.set()
    ticking.join(5)
    found = re.findall(rb"(FIN|REQ) (.{16})(?: 5)?\n|RDY (\d+)\n|NOP\n", wire.sent, re.DOTALL)
    answered = [each[1] for each in found if each[0]]
    assert sorted(answered) == [ident(b * 10_000 + n) for b in range(6) for n in range(1000)]
    levels = [each[2] for each in found if each[2]]
    assert levels[-1] == b"7"
    assert all(one != other for one, other in itertools.pairwise(levels))
    rest = re.sub(rb"(FIN|REQ) (.{16})( 5)?\n|RDY (\d+)\n|NOP\n", b"", wire.sent, flags=re.DOTALL)
    assert rest == b""


def test_in_a_child_it_is_broken_and_its_parents_lives_on(write_buffer, wire):
    write_buffer.rdy = 9
    write_buffer.flush()
    write_buffer.drop()
    assert not write_buffer.ack(ident(1))
    write_buffer.send(b"NOP\n")
    assert wire.sent == b"RDY 9\n"
    assert (wire.dropped, wire.hung_up) == (True, False)


def test_a_message_id_may_hold_any_byte(write_buffer, wire):
    write_buffer.rdy = 1
    write_buffer.flush()
    odd = b"\n FIN \x00\xff\r\n NOP\n"[:16].ljust(16, b"\n")
    write_buffer.ack(odd)
    assert wire.writes[-1] == b"FIN " + odd + b"\n"


def test_who_comes_while_another_sends_is_served_by_him():
    """The try-lock loses no command: its holder looks again after releasing it."""
    wire = Cancellable()
    write_buffer = WriteBuffer(wire, lambda _write_buffer: None)
    with slow_sender(wire, write_buffer):
        write_buffer.send(b"B\n")
        assert wire.writes == []
    eventually(lambda: wire.sent == b"A\nB\n")


def test_a_drain_waits_for_the_thread_that_is_sending():
    """Or the connection would be ended while half of the answers are still to leave."""
    wire = Cancellable()
    write_buffer = WriteBuffer(wire, lambda _write_buffer: None)
    drained: list[bytes] = []

    def drain() -> None:
        assert write_buffer.drain(monotonic() + 10)
        drained.append(wire.sent)

    with slow_sender(wire, write_buffer):
        write_buffer.send(b"B\n")
        assert not write_buffer.drain(monotonic() + 0.01)
        draining = threading.Thread(target=drain)
        draining.start()
        assert drained == []
    draining.join(10)
    assert drained == [b"A\nB\n"]


def test_a_drain_of_a_broken_connection_ends_at_once(wire, write_buffer):
    wire.error = OSError("gone")
    write_buffer.ack(ident(1))
    assert not write_buffer.drain(monotonic() + 10)
    assert not write_buffer.drain(monotonic() + 10)


@contextmanager
def slow_sender(wire, write_buffer):
    """Another thread is in the middle of sending ``A`` until the block ends."""
    inside, go_on = threading.Event(), threading.Event()
    real = wire.write

    def slow(data: bytes) -> None:
        if not inside.is_set():
            inside.set()
            assert go_on.wait(10)
        real(data)

    wire.write = slow
    sending = threading.Thread(target=write_buffer.send, args=(b"A\n",))
    sending.start()
    assert inside.wait(5)
    try:
        yield
    finally:
        go_on.set()
    sending.join(5)


def test_what_was_dropped_without_an_answer_needs_a_place_of_its_own():
    wire = Cancellable()
    write_buffer = WriteBuffer(wire, lambda _: None, 4)
    write_buffer.rdy = 1
    write_buffer.flush()
    write_buffer.strays = 2
    write_buffer.flush(wait=False)
    write_buffer.rdy = 3
    write_buffer.flush()
    write_buffer.rdy = 0
    write_buffer.flush()
    assert wire.sent == b"RDY 1\nRDY 3\nRDY 4\nRDY 0\n"
