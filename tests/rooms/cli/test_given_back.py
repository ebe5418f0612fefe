"""What ``-n`` did not want: asked for no more first, and then given back, once at most."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nsqsmart import ConsumerConfig, Producer, PullSubscription
from nsqsmart.cli.commands.copy import Copier, Filter, KeptFields
from nsqsmart.cli.commands.to_file import Filing
from nsqsmart.cli.common.ending import Ending
from nsqsmart.cli.common.progress import ProgressBar
from nsqsmart.client.consuming.rdy_controller import RdyController
from nsqsmart.contrib.shared import running
from nsqsmart.contrib.shared.running import Shift, StopLimits
from nsqsmart.contrib.shared.settings import Settings
from nsqsmart.errors import MessageRejected, PublishFailed

COUNT = 300


@pytest.fixture
def full(cluster):
    """Where the topic ``orders`` waits on the channel ``c``."""
    for topic in ("orders", "copies"):
        cluster.create_topic(topic)
        cluster.create_channel(topic, "c")
    with Producer(cluster.url) as producer:
        producer.publish_many("orders", [b"%d" % n for n in range(COUNT)])
    return cluster


def attempts(cluster, count):
    with PullSubscription(cluster.url, "orders", "c") as pulled:
        pulled.set_rdy(count)
        seen = []
        while len(seen) < count:
            messages = pulled.pull(count, 5)
            assert messages, f"{len(seen)} of {count} came"
            seen += [message.attempts for message in messages]
            pulled.finish(messages)
    return seen


@pytest.mark.parametrize("command", ["copy", "to-file", "tail"])
def test_what_n_did_not_want_is_given_back_once(full, nsqsmart, tmp_path, command):
    more = {"copy": ("copies",), "to-file": ("--output-dir", tmp_path), "tail": ()}[command]
    code, _, err = nsqsmart(command, "orders", *more, "--channel", "c", "-n", 7, "--url", full.url)
    assert (code, err) == (0, "")
    assert max(attempts(full, COUNT - 7)) <= 2


@pytest.mark.parametrize("command", ["copy", "to-file", "tail"])
def test_it_asks_for_no_more_than_n_whatever_the_address_says(full, nsqsmart, tmp_path, command):
    more = {"copy": ("copies",), "to-file": ("--output-dir", tmp_path), "tail": ()}[command]
    url = f"{full.url}?max_in_flight={COUNT}"
    assert nsqsmart(command, "orders", *more, "--channel", "c", "-n", 7, "--url", url)[0] == 0
    # As many in flight, and as many again in the places of those that were wanted.
    assert sum(count > 1 for count in attempts(full, COUNT - 7)) <= 14


def test_a_flag_wins_over_the_address(full, nsqsmart, monkeypatch):
    asked = []
    monkeypatch.setattr(
        RdyController,
        "__init__",
        spy(RdyController.__init__, lambda each: asked.append(each.config)),
    )
    arguments = ("tail", "orders", "--channel", "c", "-n", 7, "--max-in-flight", 3)
    assert nsqsmart(*arguments, "--url", f"{full.url}?max_in_flight=50&workers=9")[0] == 0
    assert [(each.max_in_flight, each.workers) for each in asked] == [(3, 1)]


def spy(method, look):
    def spied(self, runtime, dispatcher):
        look(runtime)
        method(self, runtime, dispatcher)

    return spied


class Sent:
    """A message, and what became of it."""

    def __init__(self, body):
        self.body = body
        self.expired = False
        self.answers = []

    def finish(self):
        self.answers.append("finished")
        return True

    def requeue(self, *_, **__):
        self.answers.append("requeued")

    def detach(self):
        self.answers.append("kept")


def messages(count):
    return [Sent(b"%d" % number) for number in range(count)]


def test_a_copier_gives_nothing_back_by_itself():
    sent = []
    producer = SimpleNamespace(
        publish_async=lambda _topic, body: sent.append(body) or SimpleNamespace(result=lambda: None)
    )
    given = messages(3)
    with Ending() as ending:
        copier = Copier(producer, KeptFields(), Filter(), ending, ProgressBar("", off=True), 1)
        copier.handler("copies")(given)
        assert ending.wait(0)
    assert sent == [b"0"]
    assert [each.answers for each in given] == [["kept", "finished"], ["kept"], ["kept"]]


def test_what_was_kept_is_copied_in_the_place_of_what_failed():
    outcomes = {b"0": PublishFailed("no answer"), b"1": None}

    def publish(_topic, body):
        def result():
            if outcomes[body]:
                raise outcomes[body]

        return SimpleNamespace(result=result)

    given = messages(2)
    with Ending() as ending:
        producer = SimpleNamespace(publish_async=publish)
        copier = Copier(producer, KeptFields(), Filter(), ending, ProgressBar("", off=True), 1)
        copier.handler("copies")(given)
        assert ending.wait(0)
    assert [each.answers for each in given] == [["kept", "requeued"], ["kept", "finished"]]
    assert copier.copied == 1


def test_a_copier_keeps_what_no_retry_can_mend():
    def refuse(*_):
        raise MessageRejected("E_BAD_MESSAGE")

    (given,) = messages(1)
    with Ending() as ending:
        producer = SimpleNamespace(publish_async=refuse)
        copier = Copier(producer, KeptFields(), Filter(), ending, ProgressBar("", off=True), None)
        copier.handler("copies")([given])
        assert ending.wait(0)
    assert given.answers == ["kept"]


@pytest.mark.parametrize(("fails", "kept"), [(False, [[], ["kept"], ["kept"]]), (True, None)])
def test_files_give_nothing_back_by_themselves(fails, kept):
    def write(_messages):
        if fails:
            raise OSError(28, "No space left on device")

    chosen = SimpleNamespace(channel="c", n=1)
    given = messages(3)
    with Ending() as ending:
        files = SimpleNamespace(write=write, closed=[])
        told = ("nsq://127.0.0.1:1", ConsumerConfig(), {"workers": 1})
        filing = Filing(chosen, *told, ending, lambda _topic: files)
        assert filing._handler(files)(given) is None
        assert ending.wait(0)
    assert [each.answers for each in given] == (kept or [["kept"]] * 3)


@pytest.mark.parametrize("batch", [False, True])
def test_what_max_messages_did_not_want_is_kept_for_the_end(monkeypatch, batch):
    made = []

    class Consumer:
        def __init__(self, _topic, _channel, handler, *, batch_handler, max_in_flight, **_):
            made.extend([max_in_flight, batch_handler or handler])

        def pause(self):
            made.append("paused")

    monkeypatch.setattr(running, "Consumer", Consumer)
    shift = Shift(StopLimits(max_messages=1))
    declared = SimpleNamespace(topic="orders", channel="c", batch=batch, options={})
    handled = []
    url = "nsq://127.0.0.1:1?max_in_flight=50"
    settings = Settings(where="here", url=url, options={}, source="options")
    shift.add(declared, handled.append, settings, None)
    assert made.pop(0) == 1
    for each in (given := messages(2)):
        assert made[0]([each] if batch else each) is None
    assert len(handled) == 1
    assert made[1:] == ["paused"]
    assert [each.answers for each in given] == [[], ["kept"]]
