"""RDY, and what a connection has in hand."""

from __future__ import annotations

import pytest

from nsqsmart.embedded.broker.records import Record
from tests.unit.embedded.broker import Client


def record(number: int) -> Record:
    return Record(b"", bytes([number]), number, 0, 0)


def holding(*numbers: int, **subscription: float) -> Client:
    client = Client(**subscription)
    for number in numbers:
        client.in_flight[bytes([number])] = (record(number), float(number))
    return client


def test_rdy_is_a_ceiling_not_a_credit() -> None:
    client = holding(1, 2)
    client.touched[b"\3"] = (record(3), 0.0, 9.0)
    client.rdy = 5
    assert (client.room(), client.holding) == (2, 3)
    client.rdy = 1
    assert client.room() == -2


@pytest.mark.parametrize(("errors", "room"), [(0, 20), (4, 20), (5, 20), (7, 18), (24, 1), (99, 1)])
def test_errors_slow_it_down_to_one_at_a_time(errors: int, room: int) -> None:
    client = Client()
    client.rdy = 20
    for _ in range(errors):
        client.failed()
    assert client.room() == room
    client.rdy = 1
    assert client.room() == 1


def test_every_success_makes_up_for_two_errors_of_which_there_are_not_too_many() -> None:
    client = Client()
    client.rdy = 2
    for _ in range(100):
        client.failed()
    assert client.errors == 22
    client.succeeded(3)
    assert (client.errors, client.finished) == (16, 3)
    client.succeeded(50)
    assert client.errors == 0


def test_what_is_late_is_taken_out_of_hand() -> None:
    client = holding(1, 2, 3, msg_timeout=10.0)
    client.touched[b"\4"] = (record(4), 0.0, 12.0)
    client.touched[b"\5"] = (record(5), 0.0, 13.0)
    assert min(client.deadlines()) == 11.0
    assert [each.index for each in client.take_expired(12.0)] == [1, 2, 4]
    assert (client.holding, client.timed_out) == (2, 3)
    assert client.holds(b"\3")
    taken = client.take(b"\5")
    assert taken is not None
    assert taken[0].index == 5
    assert not client.holds(b"\5")


def test_everything_is_taken_in_the_order_of_the_log() -> None:
    client = holding(3, 1)
    client.touched[b"\2"] = (record(2), 0.0, 9.0)
    assert [each.index for each, _ in client.take_all()] == [1, 2, 3]
    assert client.holding == 0
    assert client.take(b"\1") is None
