"""Threads have a name, end with the process, and never end silently."""

from __future__ import annotations

import threading

from nsqsmart.net.threads import spawn


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
