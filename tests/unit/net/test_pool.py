"""Loans are exclusive, bounded and end clean; no interrupt and no thread leaks a place."""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Callable
from contextlib import contextmanager, suppress
from time import monotonic
from weakref import ref

import pytest

from nsqsmart.errors import ClientClosed, ConnectError, PoolTimeout
from nsqsmart.names import Address
from nsqsmart.net import pool as pool_module
from nsqsmart.net import waiters as tokens
from nsqsmart.net.pool import ConnectionPool
from tests.helpers import eventually
from tests.interrupts import count_places, interrupted_at

HERE, THERE = Address("here", 4150), Address("there", 4150)
SOON = 5.0


class Line:
    """Stands for a connection."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.idle_since = self.lent_at = 0.0
        self.expires_at = math.inf
        self.seen_alive = -math.inf
        self.generation = self.loans = 0
        self.spoiled = False
        self.usable = True
        self.closed = self.dropped = self.hung_up = False

    def is_usable(self, now: float = 0.0) -> bool:
        return self.usable

    def close(self) -> None:
        self.closed = True

    def hang_up(self) -> None:
        self.hung_up = True

    def drop(self) -> None:
        self.dropped = True


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


@pytest.fixture(autouse=True)
def _only_who_is_woken_looks(monkeypatch) -> None:
    monkeypatch.setattr(tokens, "LOOK_AGAIN", 30.0)


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


def waiting_in(pool: ConnectionPool, address: Address = HERE) -> int:
    return len(pool._hosts[address].line)


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


def waiters(pool: ConnectionPool, count: int) -> list[Line]:
    """Let so many wait in line, with all the time there is; what they get."""
    got: list[Line] = []
    already = waiting_in(pool)
    for number in range(already, already + count):
        in_thread(lambda: got.append(take(pool, patience=60)))
        eventually(lambda number=number: waiting_in(pool) == number + 1)
    return got


def test_who_waits_gets_what_comes_back(pool, opener):
    with lend(pool):
        with lend(pool) as line:
            got = waiters(pool, 1)
        eventually(lambda: got == [line], SOON)


def test_who_waits_dials_in_the_room_that_a_spoiled_one_leaves(pool, opener):
    with lend(pool):
        with lend(pool) as line:
            line.spoiled = True
            got = waiters(pool, 1)
        eventually(lambda: got, SOON)
    assert got != [line]


def test_who_waits_dials_in_the_room_of_one_who_could_not(opener):
    may_fail = threading.Event()

    def open_late(address: Address, deadline: float) -> Line:
        if not may_fail.is_set():
            assert may_fail.wait(SOON)
            raise ConnectError("refused")
        return opener(address, deadline)

    pool = ConnectionPool(open_late, size=1, idle_timeout=45)

    def fail() -> None:
        with pytest.raises(ConnectError):
            take(pool)

    failing = in_thread(fail)
    eventually(lambda: HERE in pool._hosts and pool._hosts[HERE].alive)
    got = waiters(pool, 1)
    may_fail.set()
    failing.join(SOON)
    eventually(lambda: got, SOON)


def test_one_who_is_served_wakes_the_next(pool, opener):
    """Two may come back before the first of the line has moved."""
    with lend(pool), lend(pool):
        got = waiters(pool, 2)
        host = pool._hosts[HERE]
        host.idle.extend([Line(HERE), Line(HERE)])
        pool._wake_first(host)
        eventually(lambda: len(got) == 2, SOON)


def test_who_came_first_is_served_first(pool):
    served: list[int] = []
    threads = []

    def work(number: int) -> None:
        with lend(pool):
            served.append(number)

    with lend(pool):
        with lend(pool):
            for number in range(6):
                threads.append(in_thread(lambda number=number: work(number)))
                eventually(lambda number=number: waiting_in(pool) == number + 1)
        for thread in threads:
            thread.join(SOON)
    assert served == list(range(6))


def test_nobody_passes_by_those_who_wait(pool):
    """A thread that gives back and takes again at once would keep the connection for ever."""
    served, release = threading.Event(), threading.Event()

    def work() -> None:
        with lend(pool):
            served.set()
            assert release.wait(SOON)

    with lend(pool):
        with lend(pool):
            waiting = in_thread(work)
            eventually(lambda: waiting_in(pool) == 1)
        with pytest.raises(PoolTimeout):
            take(pool, patience=0.05)
        assert served.wait(SOON)
        release.set()
        waiting.join(SOON)


def test_who_is_next_dials_while_the_first_one_dials(opener):
    both = threading.Barrier(2)

    def slow(address: Address, deadline: float) -> Line:
        both.wait(SOON)
        return opener(address, deadline)

    pool = ConnectionPool(slow, size=2, idle_timeout=45)
    threads = [in_thread(lambda: pool.give_back(take(pool))) for _ in range(2)]
    for thread in threads:
        thread.join(SOON)
    assert len(opener.opened) == 2


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
    monkeypatch.setattr(tokens, "LOOK_AGAIN", 0.01)
    loans = [take(pool), take(pool)]
    got = []
    waiting = in_thread(lambda: got.append(take(pool)))
    eventually(lambda: waiting_in(pool) == 1)
    loans.clear()
    gc.collect()
    waiting.join(SOON)
    assert got


def test_retire_closes_what_is_idle_to_that_nsqd_alone(pool):
    with lend(pool) as here, lend(pool, THERE) as there:
        pass
    pool.retire(HERE)
    pool.retire(Address("absent", 1))
    assert (here.closed, there.closed) == (True, False)


def test_what_was_lent_when_it_was_retired_is_not_kept(pool):
    with lend(pool) as before:
        pool.retire(HERE)
    assert before.closed
    with lend(pool) as after:
        pass
    assert not after.closed


def test_one_that_was_seen_alive_a_moment_ago_is_lent_without_a_look(pool):
    pool.give_back(line := pool.take(HERE, SOON, 1.0))
    line.usable, line.seen_alive = False, 1.0
    assert pool.take(HERE, SOON, 1.004) is line


@pytest.mark.parametrize(
    ("now", "expires_at", "arguments"),
    [(1.005, math.inf, {}), (1.001, 1.001, {}), (1.001, math.inf, {"look": True})],
    ids=["5 ms later", "where TLS is over", "for what is sent once"],
)
def test_any_other_is_looked_at(pool, now, expires_at, arguments):
    pool.give_back(line := pool.take(HERE, SOON, 1.0))
    line.usable, line.seen_alive, line.expires_at = False, 1.0, expires_at
    assert pool.take(HERE, SOON, now, **arguments) is not line


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


def test_close_ends_what_is_idle_and_the_exchange_of_what_is_lent(pool):
    with lend(pool) as lent:
        with lend(pool) as idle:
            pass
        pool.close()
        assert (idle.closed, lent.closed, lent.hung_up) == (True, False, True)
        with pytest.raises(ClientClosed):
            take(pool)
    assert lent.closed


def test_who_dials_when_it_closes_gets_nothing(opener):
    dialling, may_dial, ended = threading.Event(), threading.Event(), []

    def slow(address: Address, deadline: float) -> Line:
        dialling.set()
        assert may_dial.wait(SOON)
        ended.append(Line(address))
        return ended[0]

    pool = ConnectionPool(slow, size=1, idle_timeout=45)

    def dial() -> None:
        with pytest.raises(ClientClosed):
            take(pool)
        ended.append("refused")

    thread = in_thread(dial)
    assert dialling.wait(SOON)
    pool.close()
    may_dial.set()
    thread.join(SOON)
    assert ended[1:] == ["refused"]
    assert ended[0].closed


def test_to_refuse_lends_no_more_and_ends_all_that_comes_back(pool):
    with lend(pool) as lent:
        with lend(pool) as idle:
            pass
        pool.refuse()
        assert pool.closed
        with pytest.raises(ClientClosed):
            take(pool, THERE)
    assert (lent.closed, idle.closed) == (True, True)


def test_close_wakes_who_waits(pool):
    ended = []

    def wait() -> None:
        with pytest.raises(ClientClosed):
            take(pool, patience=60)
        ended.append(1)

    with lend(pool), lend(pool):
        waiting = in_thread(wait)
        eventually(lambda: waiting_in(pool) == 1)
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
        eventually(lambda: len(pool._watchers) == 2)
        assert not ended.is_set()
    assert ended.wait(SOON)


def test_waiting_goes_on_while_calls_are_busy(pool):
    busy, asked, ended = [True], [], threading.Event()

    def is_busy() -> bool:
        asked.append(1)
        return busy[0]

    def wait() -> None:
        pool.wait_for_loans(monotonic() + 60, is_busy)
        ended.set()

    in_thread(wait)
    eventually(lambda: asked)
    assert not ended.is_set()
    busy.clear()
    busy.append(False)
    pool.tell_watchers()
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


def test_an_interrupt_anywhere_leaks_no_place():
    def use(pool: ConnectionPool) -> None:
        for _ in range(2):
            with lend(pool, patience=0.05) as line:
                line.spoiled = not line.spoiled
        with lend(pool), suppress(PoolTimeout):
            take(pool, patience=0.001)

    def fresh() -> ConnectionPool:
        return ConnectionPool(Opener(), size=1, idle_timeout=45)

    pool = fresh()
    hosts = count_places(lambda: use(pool))
    assert hosts > 50
    for position in range(1, hosts + 1):
        pool = fresh()
        with suppress(KeyboardInterrupt), interrupted_at(position):
            use(pool)
        with lend(pool, patience=0.05) as line:
            assert not line.closed
        assert waiting_in(pool) == 0
