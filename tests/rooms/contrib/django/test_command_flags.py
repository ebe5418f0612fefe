"""The flags of the commands: how many threads, and which alias."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator

import pytest
from django.core.management import CommandError, call_command

import nsqsmart
from nsqsmart.contrib.django import handler, handlers
from nsqsmart.embedded import Cluster
from tests.conftest import our_threads

NO_NSQD = "nsq://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _declared_here(recorded, monkeypatch) -> None:
    monkeypatch.setattr(handlers, "declared", [])
    monkeypatch.setattr("nsqsmart.client.consuming.run._LOOK_EVERY", 0.02)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nsqds=2, lookupds=1) as made:
        made.create_topic("orders", partitions=2)
        for channel in ("billing", "mail"):
            made.create_channel("orders", channel)
        yield made


def publish(cluster: Cluster, *bodies: bytes) -> None:
    with nsqsmart.Producer(cluster.url) as producer:
        for each in bodies:
            producer.publish("orders", each)


def run(command: str, **options: object) -> str:
    out = io.StringIO()
    call_command(command, stdout=out, stderr=out, **options)
    return out.getvalue()


def test_workers_are_as_many_as_the_command_says(cluster, nsq_settings):
    nsq_settings(default={"URL": cluster.url})
    together, met = threading.Barrier(2), []

    @handler("orders", "billing", workers=1)
    def bill(message):
        workers = [each.name for each in our_threads() if "-worker-" in each.name]
        met.append(together.wait(10) if len(workers) == 2 else workers)

    publish(cluster, b"1", b"2")
    run("nsq_consume", workers=2, max_messages=2, skip_checks=True)
    assert sorted(met) == [0, 1]


def test_only_the_handlers_of_an_alias_run(cluster, nsq_settings):
    nsq_settings(default={"URL": NO_NSQD}, audit={"URL": cluster.url})
    seen = []
    handler("orders", "billing")(lambda message: seen.append("wrong"))
    handler("orders", "mail", alias="audit")(lambda message: seen.append(message.body))
    publish(cluster, b"1")
    out = run("nsq_consume", alias="audit", max_messages=1, skip_checks=True)
    assert seen == [b"1"]
    assert "orders/billing" not in out


def test_only_the_servers_of_an_alias_are_asked(cluster, nsq_settings):
    nsq_settings(default={"URL": cluster.url}, audit={"URL": NO_NSQD})
    with pytest.raises(CommandError, match="audit: no nsqd answers"):
        run("nsq_ping", timeout=2)
    out = run("nsq_ping", alias="default", timeout=5)
    assert out.count("default: 127.0.0.1:") == 2
    assert "audit" not in out
