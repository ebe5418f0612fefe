"""Threads have a name, end with the process, and never end silently."""

from __future__ import annotations

import threading

from nsqsmart.net.threads import spawn
from tests.interrupts import interrupted_at


def test_a_thread_is_named_and_keeps_no_process_alive():
    seen = []
    thread = spawn("reader-a:1", lambda: seen.append(threading.current_thread()))
    thread.join(5)
    assert seen == [thread]
    assert thread.name == "nsqsmart-reader-a:1"
    assert thread.daemon


def test_an_error_that_ends_a_thread_is_logged_with_its_name(caplog):
    def fail() -> None:
        raise ValueError("oops")

    spawn("worker-3", fail).join(5)
    (record,) = caplog.records
    assert "nsqsmart-worker-3" in record.getMessage()
    assert record.exc_info
    assert "oops" in caplog.text


def test_an_interrupt_while_a_thread_starts_is_not_taken_for_one_that_cannot_start():
    def start() -> None:
        spawn("nothing", lambda: None)

    position, interrupted = 1, True
    while interrupted:
        with interrupted_at(position) as places:
            try:
                start()
            except KeyboardInterrupt:
                position += 1
            else:
                interrupted = False
    assert places.passed < position
