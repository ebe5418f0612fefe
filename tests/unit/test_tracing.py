"""The trace switch: which call counts, what a source may do to it, threads and forks."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import nsqsmart
from nsqsmart import tracing
from nsqsmart.errors import ConfigError
from nsqsmart.policy.trace_rates import MAX_DOCUMENT
from nsqsmart.tracing import TraceSwitch


class Clock:
    """Monotonic seconds, by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now

    def pass_a_second(self) -> None:
        self.now += 1.0


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(tracing, "monotonic", made)
    return made


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "trace.json"


@pytest.fixture
def default() -> Iterator[None]:
    """The process's own switch, put back as it was."""
    yield
    tracing.set_source(None)


def on(switch: TraceSwitch, *topics: str) -> list[bool]:
    return [switch.is_on(topic) for topic in topics]


# ------------------------------------------------------------------------------------- the calls


def test_at_first_nothing_is_traced():
    switch = TraceSwitch()
    assert on(switch, "orders", "other") == [False, False]
    assert not any(switch.sampled("orders") for _ in range(100))


def test_one_topic_and_every_topic():
    switch = TraceSwitch()
    switch.enable("orders")
    assert on(switch, "orders", "other") == [True, False]
    switch.enable()
    assert on(switch, "orders", "other") == [True, True]
    switch.disable("orders")
    assert on(switch, "orders", "other") == [False, True]
    switch.disable()
    assert on(switch, "orders", "other") == [False, False]


def test_a_word_about_every_topic_makes_those_about_single_ones_forgotten():
    switch = TraceSwitch()
    switch.disable("orders")
    switch.enable()
    assert switch.is_on("orders")
    switch.enable("orders")
    switch.disable()
    assert not switch.is_on("orders")


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 1.0])
def test_messages_are_drawn_by_the_rate(rate):
    random.seed(7)
    switch = TraceSwitch()
    switch.enable("orders", rate=rate)
    drawn = sum(switch.sampled("orders") for _ in range(10_000))
    assert drawn == pytest.approx(10_000 * rate, abs=200 if 0 < rate < 1 else 0)
    assert switch.is_on("orders") is (rate > 0)
    assert not switch.sampled("other")


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_rate_out_of_range_is_refused_and_changes_nothing(rate):
    switch = TraceSwitch()
    with pytest.raises(ConfigError, match="rate must be from 0 to 1"):
        switch.enable("orders", rate=rate)
    assert not switch.is_on("orders")


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [(("orders", "all"), TypeError), ((7,), TypeError), (("no topic",), ConfigError)],
)
def test_arguments_are_checked(arguments, kind):
    with pytest.raises(kind):
        TraceSwitch().enable(*arguments)


def test_it_says_what_it_does(file):
    switch = TraceSwitch()
    switch.enable("orders", rate=0.1)
    assert repr(switch) == "<TraceSwitch orders 0.1>"
    assert repr(TraceSwitch(file)) == f"<TraceSwitch none source={file}>"


def test_the_module_is_the_switch_of_the_process(default):
    assert nsqsmart.tracing is tracing
    nsqsmart.tracing.enable("orders", rate=1.0)
    assert nsqsmart.tracing.is_on("orders")
    assert nsqsmart.tracing.sampled("orders")
    assert nsqsmart.tracing.switch.is_on("orders")
    nsqsmart.tracing.disable("orders")
    assert not nsqsmart.tracing.is_on("orders")
    nsqsmart.tracing.set_source(lambda: {"orders": 1.0})
    assert nsqsmart.tracing.is_on("orders")
    nsqsmart.tracing.set_source(None)
    assert not nsqsmart.tracing.is_on("orders")


# ------------------------------------------------------------------------------------ the source


def test_a_file_says_what_is_traced_and_is_looked_at_once_a_second(clock, file):
    file.write_text('{"orders": 1.0, "*": 0.01}')
    switch = TraceSwitch(source=file)
    assert on(switch, "orders", "other") == [True, True]
    file.write_text('{"other": 1.0}')
    clock.now += 0.99
    assert on(switch, "orders", "other") == [True, True]
    clock.now += 0.01
    assert on(switch, "orders", "other") == [False, True]


def test_a_callable_says_what_is_traced_and_is_asked_once_a_second(clock):
    asked = []

    def source() -> dict[str, float]:
        asked.append(clock.now)
        return {"orders": 1.0}

    switch = TraceSwitch(source=source)
    assert asked == []
    for _ in range(3):
        for _ in range(10):
            assert switch.sampled("orders")
            assert not switch.is_on("other")
        clock.pass_a_second()
    assert asked == [1000.0, 1001.0, 1002.0]


def test_what_is_said_comes_before_the_source(clock):
    switch = TraceSwitch(source=lambda: {"orders": 1.0, "*": 1.0})
    switch.disable("orders")
    assert on(switch, "orders", "other") == [False, True]
    switch.disable()
    assert on(switch, "orders", "other") == [False, False]


def test_a_new_source_makes_what_was_said_forgotten(clock):
    switch = TraceSwitch()
    switch.enable("other")
    switch.set_source(lambda: {"orders": 1.0})
    assert on(switch, "orders", "other") == [True, False]
    switch.disable()
    switch.set_source(lambda: {"other": 1.0})
    assert on(switch, "orders", "other") == [False, True]
    switch.set_source(None)
    assert on(switch, "orders", "other") == [False, False]


@pytest.mark.parametrize("source", [7, b"trace.json", ["trace.json"]])
def test_what_is_no_source_is_refused(source):
    with pytest.raises(TypeError, match=f"JSON file or a callable, not {type(source).__name__}"):
        TraceSwitch(source=source)


def test_a_path_stays_the_same_file_when_the_program_changes_its_directory(
    clock, file, monkeypatch
):
    file.write_text('{"orders": 1.0}')
    monkeypatch.chdir(file.parent)
    switch = TraceSwitch(source=file.name)
    monkeypatch.chdir("/")
    assert switch.is_on("orders")


BAD = [
    (b"{", "it is not JSON"),
    (b"[]", "not list"),
    (b'{"orders": 7}', "the rate of 'orders' must be from 0 to 1, not 7"),
    (b'{"orders": 1}'.ljust(MAX_DOCUMENT + 1), f"more than {MAX_DOCUMENT} bytes"),
    (None, "it cannot be read: No such file"),
]


@pytest.mark.parametrize(("document", "reason"), BAD)
def test_a_bad_document_keeps_the_last_good_one_and_warns_once(
    clock, file, caplog, document, reason
):
    caplog.set_level("INFO", "nsqsmart")
    file.write_text('{"orders": 0.5, "*": 0}')
    switch = TraceSwitch(source=file)
    assert on(switch, "orders", "other") == [True, False]
    if document is None:
        file.unlink()
    else:
        file.write_bytes(document)
    for _ in range(3):
        clock.pass_a_second()
        assert on(switch, "orders", "other") == [True, False]
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    text = warning.getMessage()
    assert reason in text
    assert str(file) in text
    assert text.endswith("the last good ones hold (orders 0.5, * 0)")
    file.write_text('{"other": 1}')
    clock.pass_a_second()
    assert on(switch, "orders", "other") == [False, True]
    assert "good again" in caplog.text
    file.write_bytes(b"{")
    clock.pass_a_second()
    assert on(switch, "orders", "other") == [False, True]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]


def test_without_a_good_document_nothing_is_traced(clock, file, caplog):
    switch = TraceSwitch(source=file)
    assert on(switch, "orders") == [False]
    assert "the last good ones hold (none)" in caplog.text


def test_what_is_named_of_many_rates_is_short(clock, file, caplog):
    file.write_text(json.dumps({f"topic{number}": 1 for number in range(1000)}))
    switch = TraceSwitch(source=file)
    assert switch.is_on("topic999")
    file.unlink()
    clock.pass_a_second()
    assert switch.is_on("topic999")
    assert caplog.text.rstrip().endswith("topic3 1, topic4 1, 995 more)")


def test_neither_a_pipe_nor_a_directory_nor_a_device_holds_anybody(clock, tmp_path, caplog):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for source, reason in [
        (pipe, "it is not a regular file"),
        (tmp_path, "it cannot be read: Is a directory"),
        (Path("/dev/zero"), "it is not a regular file"),
    ]:
        caplog.clear()
        assert not TraceSwitch(source=source).is_on("orders")
        assert reason in caplog.text


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda: None, "not NoneType"),
        (lambda: '{"orders": 1}', "not str"),
        (lambda: {"orders": "1"}, "the rate of 'orders' must be a number from 0 to 1, not str"),
        (lambda: 1 / 0, "it raised ZeroDivisionError"),
    ],
)
def test_a_callable_that_fails_is_borne(clock, caplog, answer, reason):
    good = {"orders": 1.0}
    answers = [lambda: good, answer, answer]

    def centre() -> object:
        return answers.pop(0)()

    switch = TraceSwitch(source=centre)
    for _ in range(3):
        assert on(switch, "orders", "other") == [True, False]
        clock.pass_a_second()
    assert not answers
    (warning,) = caplog.records
    assert reason in warning.getMessage()
    assert "centre" in warning.getMessage()


def test_what_an_error_of_a_callable_says_is_not_logged(clock, caplog):
    def centre() -> dict[str, float]:
        raise OSError("http://user:hunter2@centre/ does not answer")

    assert not TraceSwitch(source=centre).is_on("orders")
    assert "it raised OSError" in caplog.text
    assert "hunter2" not in caplog.text


def test_an_interrupt_of_the_callable_is_the_callers_and_leaves_nothing_held(clock):
    answers = [KeyboardInterrupt, None]

    def centre() -> dict[str, float]:
        if error := answers.pop(0):
            raise error
        return {"orders": 1.0}

    switch = TraceSwitch(source=centre)
    with pytest.raises(KeyboardInterrupt):
        switch.is_on("orders")
    clock.pass_a_second()
    assert switch.is_on("orders")


def test_of_a_giant_file_no_more_is_read_than_a_document_may_have(clock, file, caplog):
    file.touch()
    os.truncate(file, 1 << 40)  # a hole: no machine has the memory for it
    assert not TraceSwitch(source=file).is_on("orders")
    assert f"more than {MAX_DOCUMENT} bytes" in caplog.text


def test_a_callable_may_publish_and_look_at_the_switch_itself(clock):
    def centre() -> dict[str, float]:
        assert not switch.is_on("orders")
        return {"orders": 1.0}

    switch = TraceSwitch(source=centre)
    assert switch.is_on("orders")


# ----------------------------------------------------------------------------- threads and forks


def test_nobody_waits_for_the_thread_that_looks(clock):
    inside, go_on = threading.Event(), threading.Event()
    asked = []

    def centre() -> dict[str, float]:
        asked.append(1)
        if len(asked) == 2:
            inside.set()
            assert go_on.wait(10)
        return {"orders": len(asked) / 4}

    switch = TraceSwitch(source=centre)
    assert switch.is_on("orders")
    clock.pass_a_second()
    thread = threading.Thread(target=switch.is_on, args=("orders",))
    thread.start()
    assert inside.wait(10)
    clock.pass_a_second()
    assert switch._rate("orders") == 0.25
    go_on.set()
    thread.join(10)
    assert len(asked) == 2
    clock.pass_a_second()
    assert switch._rate("orders") == 0.75


def test_many_threads_look_once(clock):
    asked = []
    together = threading.Barrier(8)

    def centre() -> dict[str, float]:
        asked.append(1)
        return {"orders": 1.0}

    switch = TraceSwitch(source=centre)

    def use() -> None:
        for _ in range(200):
            together.wait(10)
            switch.is_on("orders")
            if together.wait(10) == 0:
                clock.pass_a_second()

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(asked) == 200


def test_who_was_overtaken_by_a_look_does_not_look_again(clock, monkeypatch):
    """Another thread looks between this one's glance at the clock and its turn."""
    asked = []
    switch = TraceSwitch(source=lambda: asked.append(1) or {"orders": 1.0})
    overtaking = [lambda: switch.is_on("orders")]

    def getpid() -> int:
        if overtaking:
            overtaking.pop()()
        return 1

    monkeypatch.setattr(os, "getpid", getpid)
    assert switch.is_on("orders")
    assert len(asked) == 1


def test_words_of_many_threads_are_all_heard():
    switch = TraceSwitch()

    def say(prefix: str) -> None:
        for number in range(500):
            switch.enable(f"{prefix}{number}")

    threads = [threading.Thread(target=say, args=(prefix,)) for prefix in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all(switch.is_on(f"{prefix}{number}") for prefix in "abcd" for number in range(500))


FORK = """
import os, threading
from nsqsmart import tracing

now = 1000.0
tracing.monotonic = lambda: now
inside, go_on = threading.Event(), threading.Event()
asked = []

def centre():
    asked.append(1)
    if len(asked) == 2:
        inside.set()
        go_on.wait(10)
    return {"orders" if len(asked) < 3 else "other": 1.0}

def rates():
    return tracing.is_on("orders"), tracing.is_on("other")

tracing.set_source(centre)
print(rates())
now += 1
thread = threading.Thread(target=rates)
thread.start()
inside.wait(10)
now += 1
child = os.fork()
if child == 0:
    try:
        print(rates(), flush=True)
    finally:
        os._exit(0)
os.waitpid(child, 0)
go_on.set()
thread.join()
print(rates())
"""


def test_a_child_of_a_fork_inherits_no_lock_that_is_held():
    """Another thread of the parent looks just then: it does not exist in the child."""
    command = [sys.executable, "-u", "-W", "ignore", "-c", FORK]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert result.stderr == ""
    assert result.stdout.splitlines() == ["(True, False)", "(False, True)", "(False, True)"]
