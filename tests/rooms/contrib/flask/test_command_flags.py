"""The flags of ``flask nsq consume``: how many threads, and which handlers."""

from __future__ import annotations

import threading

import pytest
from flask import Flask

import nsqsmart
from nsqsmart.contrib.flask import NSQ
from nsqsmart.embedded import Cluster
from tests.conftest import our_threads


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch) -> None:
    monkeypatch.setattr("nsqsmart.client.consuming.run._LOOK_EVERY", 0.02)


@pytest.fixture
def cluster():
    with Cluster(nsqds=2, lookupds=1) as made:
        made.create_topic("orders", partitions=2)
        for channel in ("billing", "mail"):
            made.create_channel("orders", channel)
        with nsqsmart.Producer(made.url) as producer:
            for body in (b"1", b"2"):
                producer.publish("orders", body)
        yield made


@pytest.fixture
def nsq(cluster):
    return NSQ()


@pytest.fixture
def consume(nsq, cluster):
    """Runs the command in an app, whose handlers are declared by then; what it printed."""

    def run(*arguments: str) -> str:
        app = Flask("shop")
        app.config.update(NSQSMART_URL=cluster.url)
        nsq.init_app(app)
        result = app.test_cli_runner().invoke(args=["nsq", "consume", *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    return run


def test_workers_are_as_many_as_the_command_says(nsq, consume):
    together, met = threading.Barrier(2), []

    @nsq.handler("orders", "billing", workers=1)
    def bill(message):
        workers = [each.name for each in our_threads() if "-worker-" in each.name]
        met.append(together.wait(10) if len(workers) == 2 else workers)

    consume("--workers", "2", "--max-messages", "2")
    assert sorted(met) == [0, 1]


def test_only_the_handlers_of_a_channel_run(nsq, consume):
    seen = []
    nsq.handler("orders", "billing")(lambda message: seen.append("wrong"))
    nsq.handler("orders", "mail")(lambda message: seen.append(message.body))
    printed = consume("--channel", "mail", "--max-messages", "2")
    assert sorted(seen) == [b"1", b"2"]
    assert "orders/billing" not in printed
