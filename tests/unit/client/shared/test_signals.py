"""While run() blocks, SIGINT and SIGTERM are told; afterwards everything is as it was."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from nsqsmart.client.producer.producer import Producer
from nsqsmart.client.shared.process import interrupts
from nsqsmart.terminal import signals_to
from tests.helpers import eventually


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_told_instead_of_raised(number):
    told = []
    with signals_to(lambda: told.append(number)):
        os.kill(os.getpid(), number)
        eventually(lambda: told == [number])


def test_what_was_installed_comes_back():
    def fail() -> None:
        with signals_to(print):
            assert signal.getsignal(signal.SIGINT) is not before[0]
            raise ValueError("oops")

    before = [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]
    with pytest.raises(ValueError, match="oops"):
        fail()
    assert [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)] == before


def test_another_thread_installs_nothing():
    found = []

    def work() -> None:
        with signals_to(print):
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(5)
    assert found == [signal.getsignal(signal.SIGINT)]


class Client:
    def call(self, callback: Callable[[], bool]) -> bool:
        return callback()

    def close(self) -> bool:
        return interrupts(self, {Client.call.__code__})


def test_who_runs_on_top_of_a_call_of_the_same_client_is_told_so():
    client, other = Client(), Client()
    assert not client.close()
    assert client.call(client.close)
    assert client.call(lambda: other.call(client.close))
    assert not other.call(client.close)


def test_every_call_of_a_producer_may_be_interrupted_by_one_that_closes_it():
    alone = {"check", "check_many", "has_spool"}  # they take nothing that close() needs
    others = {"publish_json", "leave"}  # they consist of calls that are there
    public = {name for name in dir(Producer) if name[0] != "_"} - alone - others
    calls = {getattr(getattr(Producer, name), "__code__", None) for name in public}
    assert calls == Producer._calls


def test_others_are_asked_about_whatever_they_belong_to():
    class Part:
        def call(self) -> bool:
            return owner.close()

    class Owner:
        def close(self) -> bool:
            return interrupts(self, {Owner.close.__code__}, {Part.call.__code__})

    owner = Owner()
    assert not owner.close()
    assert Part().call()
