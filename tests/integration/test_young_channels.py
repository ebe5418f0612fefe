"""Channels without a first FIN, which a redesigned cluster forgets with their leader.

The facts are those of protocol#new-leader. The embedded cluster plays it in milliseconds; a real
one forgets an ordered channel at SIGTERM.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster
from tests.helpers import eventually
from tests.integration.consuming import Handled, numbered, publish
from tests.sites import CHANNEL, real_site

COUNT = 6


@pytest.fixture
def forgetful() -> Iterator[Cluster]:
    with Cluster(nsqds=3, lookupds=1, young_channels_lost=True, election_delay=0.1) as cluster:
        yield cluster


def make(cluster: Cluster, *, ordered: bool) -> None:
    cluster.create_topic("t", partitions=1, replicas=3, ordered=ordered)
    cluster.create_channel("t", "c")


class Held:
    """A handler that holds what it gets, and can answer nothing, until it is released."""

    def __init__(self) -> None:
        self.handled = Handled()
        self.entered = threading.Event()
        self.released = threading.Event()

    def __call__(self, message: nsqsmart.Message) -> None:
        if not self.released.is_set():
            self.entered.set()
            self.released.wait(30)
            # Too late: its connection is gone.
            message.finish()
            return
        self.handled(message)

    def bodies(self) -> list[bytes]:
        return list(dict.fromkeys(self.handled.bodies()))


@contextmanager
def switched(cluster: Cluster, **options) -> Iterator[tuple[nsqsmart.Consumer, Held]]:
    """A consumer that has something in hand and nothing finished when its leader is killed."""
    held = Held()
    # One worker holds the first message, and all others wait here: the governor would not ask for
    # them.
    options = {"workers": 1, "rdy_mode": "level", **options}
    consumer = nsqsmart.Consumer("t", "c", held, address=cluster.url, **options)
    with consumer:
        try:
            assert held.entered.wait(10)
            runtime = consumer._runtime
            (before,) = runtime.snapshot()
            if not before.ordered:
                eventually(lambda: before.reader.received == COUNT)
            cluster.kill(cluster.leader("t", 0))
            eventually(
                lambda: any(each.live and each is not before for each in runtime.snapshot()),
                what="a new subscription",
            )
            held.released.set()
            yield consumer, held
        finally:
            held.released.set()


def test_an_ordered_channel_is_set_back(forgetful, caplog):
    make(forgetful, ordered=True)
    publish(forgetful, *numbered(COUNT), partition=0)
    with caplog.at_level(logging.ERROR), switched(forgetful) as (consumer, held):
        eventually(lambda: held.bodies() == numbered(COUNT))
        assert consumer.stats().channels_lost == 1
        assert consumer._runtime.order_violations == 0
    assert "set back to 0" in caplog.text


def test_without_that_its_messages_are_skipped_and_it_is_said(forgetful, caplog):
    make(forgetful, ordered=True)
    publish(forgetful, *numbered(COUNT), partition=0)
    with (
        caplog.at_level(logging.ERROR),
        switched(forgetful, on_channel_lost="warn") as (consumer, held),
    ):
        publish(forgetful, b"new", partition=0)
        eventually(lambda: held.bodies() == [b"new"])
        assert consumer.stats().channels_lost == 1
    assert "has forgotten the channel and skipped them" in caplog.text
    assert "from offset 0" in caplog.text


@pytest.mark.parametrize("positions", [False, True])
def test_an_unordered_channel_is_told_of(forgetful, caplog, positions):
    make(forgetful, ordered=False)
    publish(forgetful, *numbered(COUNT), partition=0)
    with (
        caplog.at_level(logging.ERROR),
        switched(forgetful, positions=positions) as (consumer, held),
    ):
        publish(forgetful, b"new", partition=0)
        # What waited here is handled too, but the server ignores its answer.
        eventually(lambda: consumer.stats().finished == 1)
        assert held.bodies()[-1] == b"new"
        assert b"0" not in held.bodies()
        assert consumer.stats().channels_lost == 1
    assert "and 6 of its messages were delivered and not finished" in caplog.text


def test_an_unordered_channel_is_set_back_when_that_is_asked_for(forgetful):
    make(forgetful, ordered=False)
    publish(forgetful, *numbered(COUNT), partition=0)
    with switched(forgetful, on_channel_lost="rewind") as (consumer, held):
        eventually(lambda: consumer.stats().finished == COUNT)
        assert sorted(held.bodies()) == numbered(COUNT)
        assert consumer.stats().channels_lost == 1


@pytest.mark.parametrize("ordered", [False, True])
def test_a_channel_with_a_first_fin_is_not_forgotten(forgetful, caplog, ordered):
    make(forgetful, ordered=ordered)
    publish(forgetful, b"first", partition=0)
    handled = Handled()
    with nsqsmart.Consumer("t", "c", handled, address=forgetful.url) as before:
        eventually(lambda: before.stats().finished == 1)
    publish(forgetful, *numbered(COUNT), partition=0)
    with caplog.at_level(logging.ERROR), switched(forgetful, positions=True) as (consumer, held):
        eventually(lambda: sorted(held.bodies()) == numbered(COUNT))
        assert consumer.stats().channels_lost == 0
    assert not caplog.records


def test_where_another_consumer_is_there_it_is_only_said(forgetful, caplog):
    make(forgetful, ordered=True)
    publish(forgetful, *numbered(COUNT), partition=0)
    held = Held()
    options = {"address": forgetful.url, "workers": 1}
    with caplog.at_level(logging.ERROR), nsqsmart.Consumer("t", "c", held, **options) as consumer:
        try:
            assert held.entered.wait(10)
            (old,) = consumer._runtime.snapshot()
            # The first one finds its new leader only when another consumer is there.
            with nsqsmart.Consumer("t", "c", held, **options) as other:
                eventually(lambda: other._runtime.snapshot()[0].live)
                forgetful.kill(forgetful.leader("t", 0))
                both = (consumer, other)
                eventually(
                    lambda: (
                        all(any(s.live for s in c._runtime.snapshot()) for c in both)
                        and old not in consumer._runtime.snapshot()
                    )
                )
                held.released.set()
                publish(forgetful, b"new", partition=0)
                eventually(lambda: b"new" in held.bodies())
                lost = consumer.stats().channels_lost
        finally:
            held.released.set()
    # Which of the two was first at the new leader is open: alone, it has set the channel back.
    assert lost == 1
    if held.bodies() == [b"new"]:
        assert "other consumers has finished them" in caplog.text


# ----------------------------------------------------------------------------- a real cluster


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    with real_site("redesigned", tmp_path_factory.mktemp("redesigned")) as site:
        site.make_topic("young", partitions=1, replicas=3, ordered=True)
        yield site


@pytest.mark.real
@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("choice", ["warn", "rewind"])
def test_a_real_cluster_forgets_and_the_consumer_remembers(real, choice):
    """Two of them: the first shows that it forgets a channel of which nothing was finished."""
    channel = f"{CHANNEL}-{choice}"
    real_admin = nsqsmart.Admin(real.url)
    real_admin.create_channel("young", channel)
    bodies = numbered(COUNT, choice.encode())
    with nsqsmart.Producer(real.url) as producer:
        for body in bodies:
            producer.publish("young", body, partition=0, timeout=60)
    held = Held()
    options = {"address": real.url, "workers": 1, "on_channel_lost": choice}
    node = real.leaders("young")[0]
    with nsqsmart.Consumer("young", channel, held, **options) as consumer:
        try:
            assert held.entered.wait(20)
            (old,) = consumer._runtime.snapshot()
            real.terminate(node)
            eventually(
                lambda: any(s.live and s is not old for s in consumer._runtime.snapshot()),
                timeout=120,
                every=0.2,
            )
            held.released.set()
            if choice == "rewind":
                eventually(lambda: held.bodies() == bodies, timeout=60, every=0.2)
            else:
                eventually(lambda: consumer.stats().channels_lost == 1, timeout=60, every=0.2)
            assert consumer.stats().channels_lost == 1
            assert consumer._runtime.order_violations == 0
            skipped = COUNT - len(held.bodies())
            print(f"\nreal, ordered, on_channel_lost={choice}: skipped {skipped} of {COUNT}")  # noqa: T201
            assert skipped == (0 if choice == "rewind" else COUNT)
        finally:
            held.released.set()
            real.restart(node)
    eventually(lambda: real.in_sync("young") == {0: 3}, timeout=150, every=0.5)
