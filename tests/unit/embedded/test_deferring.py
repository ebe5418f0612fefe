"""Messages that wait for their time."""

from __future__ import annotations

from nsqsmart.embedded.broker.deferring import Alarm, Deferrals
from nsqsmart.embedded.broker.records import Record


def record(number: int) -> Record:
    return Record(b"", bytes([number]), number, 0, 0)


def test_they_come_in_the_order_of_their_times_then_of_their_coming() -> None:
    alarm = Alarm()
    held = Deferrals(alarm)
    for number, due in ((1, 5.0), (2, 3.0), (3, 5.0), (4, 9.0)):
        held.hold(record(number), due)
    assert (alarm.at, held.next_due(), len(held)) == (3.0, 3.0, 4)
    assert b"\2" in held
    assert held.take_due(2.9) == []
    assert [each.index for each in held.take_due(5.0)] == [2, 1, 3]
    assert b"\2" not in held
    assert (len(held), held.next_due()) == (1, 9.0)
    held.clear()
    assert (len(held), held.next_due(), b"\4" in held) == (0, None, False)
