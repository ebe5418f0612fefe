"""Loans are exclusive, bounded and end clean; no interrupt and no thread leaks a place."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from weakref import ref

import pytest

from nsqsmart.errors import ClientClosed, ConnectError, PoolTimeout
from nsqsmart.names import Address
from nsqsmart.net import pool as pool_module
from nsqsmart.net.pool import ConnectionPool
from tests.helpers import eventually

HERE, THERE = Address("here", 4150), Address("there", 4150)
SOON = 5.0


class Line:
    """Stands for a connection."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.idle_since = 0.0
        self.spoiled = False
        self.usable = True
        self.closed = self.dropped = self.hung_up = False

    def is_usable(self, now: float) -> bool:
        return self.usable

    def close(self) -> None:
        self.closed = True

    def drop(self) -> None:
        self.dropped = True

    def hang_up(self) -> None:
        self.hung_up = True


class Opener:
    """Opens Lines, or fails as told."""

    def __init__(self) -> None:
        self.opened: list[ref[Line]] = []
        self.error: BaseException | None = None

    def __call__(self, address: Address, deadline: float) -> Line:
        if self.error:
            raise self.error
        line = Line(address)
        self.opened.append(ref(line))
        return line


@pytest.fixture
def opener() -> Opener:
    return Opener()


@pytest.fixture
def pool(opener) -> ConnectionPool:
    return ConnectionPool(opener, size=2, idle_timeout=45)


def take(pool: ConnectionPool, address: Address = HERE, patience: float = SOON):
    return pool.take(address, monotonic() + patience)


@contextmanager
def lend(pool: ConnectionPool, address: Address = HERE, patience: float = SOON):
    line = take(pool, address, patience)
    try:
        yield line
    finally:
        pool.give_back(line)


def in_thread(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def test_a_clean_loan_is_lent_again(pool, opener):
    for _ in range(3):
        with lend(pool) as line:
            assert not line.closed
    assert len(opener.opened) == 1


def test_two_loans_never_share_a_connection(pool):
    with lend(pool) as one, lend(pool) as other:
        assert one is not other


def test_the_one_used_last_is_lent_first(pool):
    with lend(pool) as cold, lend(pool) as warm:
        pass
    # The inner block ended first, so the outer one's connection came back last.
    with lend(pool) as line:
        assert line is cold
        with lend(pool) as other:
            assert other is warm


def test_a_spoiled_connection_is_closed_instead(pool, opener):
    with lend(pool) as line:
        line.spoiled = True
    assert line.closed
    with lend(pool) as other:
        assert other is not line


def test_an_error_in_the_block_alone_spoils_nothing(pool):
    with pytest.raises(ValueError, match="mine"), lend(pool) as line:
        raise ValueError("mine")
    assert not line.closed


def test_idle_ones_that_died_are_closed_one_after_another(pool, opener):
    with lend(pool) as one, lend(pool) as other:
        pass
    one.usable = other.usable = False
    with lend(pool) as line:
        assert line not in (one, other)
    assert one.closed
    assert other.closed
    assert len(opener.opened) == 3


def test_addresses_have_places_of_their_own(pool):
    with lend(pool), lend(pool), lend(pool, THERE) as line:
        assert line.address == THERE


def test_beyond_its_size_it_makes_wait_and_says_which_option_helps(pool, opener):
    with lend(pool), lend(pool), pytest.raises(PoolTimeout, match="pool_size") as caught:
        take(pool, patience=0.05)
    assert not caught.value.sent
    assert len(opener.opened) == 2


def test_who_waits_gets_what_comes_back(pool, opener):
    got = []
    with lend(pool):
        with lend(pool) as line:
            waiting = in_thread(lambda: got.append(take(pool)))
            eventually(lambda: pool._waiting == 1)
        waiting.join(SOON)
    assert got == [line]


def test_a_connection_that_cannot_be_opened_leaves_its_place(pool, opener):
    opener.error = ConnectError("refused")
    for _ in range(5):
        with pytest.raises(ConnectError):
            take(pool, patience=0.05)
    opener.error = None
    with lend(pool), lend(pool):
        pass


def test_loans_that_are_forgotten_leave_their_places(pool):
    for _ in range(5):
        take(pool)
        gc.collect()
    with lend(pool, patience=0.05):
        pass


def test_a_waiter_notices_a_forgotten_loan(pool, monkeypatch):
    monkeypatch.setattr(pool_module, "_LOOK_AGAIN", 0.01)
    loans = [take(pool), take(pool)]
    got = []
    waiting = in_thread(lambda: got.append(take(pool)))
    eventually(lambda: pool._waiting == 1)
    loans.clear()
    gc.collect()
    waiting.join(SOON)
    assert got


def test_retire_closes_what_is_idle_to_that_nsqd_alone(pool):
    with lend(pool) as here, lend(pool, THERE) as there:
        pass
    pool.retire(HERE)
    pool.retire(Address("nobody", 1))
    assert (here.closed, there.closed) == (True, False)


def test_what_was_lent_when_it_was_retired_is_not_kept(pool):
    with lend(pool) as before:
        pool.retire(HERE)
    assert before.closed
    with lend(pool) as after:
        pass
    assert not after.closed


def test_figures_are_those_of_each_nsqd(pool, opener):
    with lend(pool):
        with lend(pool) as spoiled:
            spoiled.spoiled = True
        with lend(pool, THERE):
            here, there = pool.stats()["here:4150"], pool.stats()["there:4150"]
    assert (here.pool_size, here.pool_available, here.requests_num) == (1, 0, 2)
    assert (here.returns_bad, here.connections_num, there.requests_num) == (1, 2, 1)
    with lend(pool) as dead:
        pass
    dead.usable = False
    opener.error = ConnectError("refused")
    with pytest.raises(ConnectError):
        take(pool)
    here = pool.stats()["here:4150"]
    assert (here.connections_lost, here.connections_errors, here.pool_size) == (1, 1, 0)
    assert (here.requests_num, here.requests_errors) == (3, 0)


def test_who_waits_in_vain_is_counted(opener):
    pool = ConnectionPool(opener, 1, 45.0)
    with lend(pool), pytest.raises(PoolTimeout):
        pool.take(HERE, monotonic() + 0.05)
    here = pool.stats()["here:4150"]
    assert (here.requests_queued, here.requests_errors) == (1, 1)
    assert here.requests_wait_ms >= 50


def test_what_is_idle_too_long_is_closed_when_anything_comes_back(pool, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(pool_module, "monotonic", lambda: now[0])
    cold = pool.take(HERE, now[0] + 5)
    pool.give_back(cold)
    now[0] += 40
    warm = pool.take(THERE, now[0] + 5)
    pool.give_back(warm)
    assert not cold.closed
    now[0] += 6
    pool.give_back(pool.take(THERE, now[0] + 5))
    assert (cold.closed, warm.closed) == (True, False)


def test_close_ends_what_is_idle_and_later_what_is_lent(pool):
    with lend(pool) as lent:
        with lend(pool) as idle:
            pass
        pool.close()
        assert (idle.closed, lent.closed) == (True, False)
        # Whoever waits for an answer on it learns it at once.
        assert lent.hung_up
        with pytest.raises(ClientClosed):
            take(pool)
    assert lent.closed


def test_close_wakes_who_waits(pool):
    ended = []

    def wait() -> None:
        with pytest.raises(ClientClosed):
            take(pool, patience=60)
        ended.append(1)

    with lend(pool), lend(pool):
        waiting = in_thread(wait)
        eventually(lambda: pool._waiting == 1)
        pool.close()
        waiting.join(SOON)
    assert ended


def test_waiting_for_loans_ends_with_the_last_or_at_its_deadline(pool):
    ended = threading.Event()

    def wait() -> None:
        pool.wait_for_loans(monotonic() + 60)
        ended.set()

    with lend(pool):
        pool.wait_for_loans(monotonic() + 0.02)
        in_thread(wait)
        eventually(lambda: pool._waiting == 1)
        assert not ended.is_set()
    assert ended.wait(SOON)


def test_a_child_closes_descriptors_and_says_nothing(pool):
    with lend(pool) as lent:
        with lend(pool) as idle:
            pass
        pool.drop()
    for line in (lent, idle):
        assert line.dropped
    assert not idle.closed


def test_many_threads_share_few_connections_one_at_a_time(opener):
    pool = ConnectionPool(opener, size=3, idle_timeout=45)
    in_use: set[int] = set()
    wrong = []

    def work(number: int) -> None:
        for turn in range(200):
            with lend(pool) as line:
                if id(line) in in_use:
                    wrong.append("shared")
                in_use.add(id(line))
                if len(in_use) > 3:
                    wrong.append("too many")
                line.spoiled = (number + turn) % 7 == 0
                in_use.discard(id(line))

    threads = [in_thread(lambda number=number: work(number)) for number in range(8)]
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert wrong == []


class Interrupt(BaseException):
    """As KeyboardInterrupt comes: between any two lines."""


def interrupted_at(line_number: int, call: Callable[[], object]) -> bool:
    """Run *call* with an interrupt at the nth line of the pool; False when it has fewer."""
    left = [line_number]
    source = Path(pool_module.__file__).read_text().splitlines()

    def trace(frame, event, _argument):
        if frame.f_code.co_filename != pool_module.__file__:
            return None
        # Tracing also stops where a block has ended and its __exit__ is not called yet, on the
        # line of the with; the interpreter takes no signal there, so a lock cannot stay locked.
        if event == "line" and not source[frame.f_lineno - 1].lstrip().startswith("with "):
            left[0] -= 1
            if left[0] == 0:
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_anywhere_leaks_no_place():
    def use(pool: ConnectionPool) -> None:
        for _ in range(2):
            with lend(pool, patience=0.05) as line:
                line.spoiled = not line.spoiled

    number = 0
    while True:
        number += 1
        pool = ConnectionPool(Opener(), size=1, idle_timeout=45)
        if not interrupted_at(number, lambda pool=pool: use(pool)):
            break
        with lend(pool, patience=0.05) as line:
            assert not line.closed
    assert number > 20
