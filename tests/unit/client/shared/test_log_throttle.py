"""What is said at once, and then rarely."""

from __future__ import annotations

from nsqsmart.client.shared import log_fields as seldom_module
from nsqsmart.client.shared.log_fields import LogThrottle


def test_the_first_one_is_told_and_the_others_are_counted(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(seldom_module, "monotonic", lambda: now)
    seldom = LogThrottle(pause=10)
    assert seldom.tell() == 1
    assert [seldom.tell() for _ in range(500)] == [None] * 500
    now += 9.9
    assert seldom.tell() is None
    now += 0.2
    assert seldom.tell() == 502
    now += 10.1
    assert seldom.tell(40) == 40
