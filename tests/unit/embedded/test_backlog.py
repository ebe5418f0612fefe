"""What goes out next."""

from __future__ import annotations

from nsqsmart.embedded.broker.backlog import ChannelBacklog
from nsqsmart.embedded.broker.ids import RedesignedIds
from nsqsmart.embedded.broker.log import RedesignedLog
from tests.unit.embedded.broker import NOW


def backlog(*bodies: bytes) -> ChannelBacklog:
    log = RedesignedLog(RedesignedIds(0, coordinated=False), 1000)
    log.append_all([(body, 0, None) for body in bodies], NOW)
    return ChannelBacklog(log, 0)


def taken(queue: ChannelBacklog, count: int) -> list[bytes]:
    return [record.body for record in queue.take(count)]


def test_records_are_read_once_and_in_order() -> None:
    queue = backlog(b"a", b"b", b"c")
    assert (taken(queue, 2), queue.available()) == ([b"a", b"b"], 1)
    assert (taken(queue, 2), taken(queue, 2), queue.available()) == ([b"c"], [], 0)


def test_what_comes_back_goes_before_after_or_first() -> None:
    queue = backlog(b"a", b"b", b"c", b"d")
    a, b = queue.take(2)
    queue.put_back(a)
    queue.put_back(b)
    assert taken(queue, 3) == [b"a", b"b", b"c"]
    queue.put_last(a)
    assert taken(queue, 2) == [b"d", b"a"]
    queue.put_back(a)
    queue.put_first(b)
    assert taken(queue, 2) == [b"b", b"a"]


def test_what_is_left_out_is_read_past_and_not_counted() -> None:
    queue = backlog(b"a", b"b", b"c")
    queue.left_out |= {1, 7}
    assert queue.unread() == 2
    assert taken(queue, 9) == [b"a", b"c"]
    assert queue.left_out == {7}


def test_beginning_anew_forgets_what_came_back() -> None:
    queue = backlog(b"a", b"b")
    queue.put_back(queue.take(1)[0])
    queue.left_out.add(1)
    queue.move_to(1)
    assert taken(queue, 9) == [b"b"]
