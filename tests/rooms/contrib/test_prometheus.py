"""The Prometheus adapter: names, buckets, what is read at a scrape, several processes."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import nsqsmart
from nsqsmart.contrib.prometheus import PrometheusMetrics
from nsqsmart.embedded import Cluster
from nsqsmart.metrics import INSTRUMENTS, Figure
from tests.helpers import eventually


@pytest.fixture
def registry():
    return CollectorRegistry()


class Client:
    """A source that says what it is told to say."""

    def __init__(self, *figures):
        self.told = list(figures)

    def figures(self):
        return self.told


def values(registry):
    """Every sample but those that say when something began."""
    return {
        (sample.name.removeprefix("nsqsmart_"), *sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_every_metric_of_the_table_is_there_as_it_says(registry):
    PrometheusMetrics(registry)
    text = generate_latest(registry).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for name, row in INSTRUMENTS.items():
        family = families["nsqsmart_" + name.removesuffix("_total")]
        assert (family.type, family.documentation) == (row.kind, row.help)


def test_a_publish_and_a_delivery_are_counted(registry):
    metrics = PrometheusMetrics(registry)
    with Cluster() as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        with nsqsmart.Producer(cluster.url, metrics=metrics) as producer:
            producer.publish_many("t", [b"1", b"22"])
            node = cluster.leader("t").name
            assert values(registry)["pool_connections", node, "idle"] == 1
        with nsqsmart.Consumer(
            "t", "c", lambda message: None, address=cluster.url, metrics=metrics
        ):
            settled = ("messages_settled_total", "t", "c", "finished")
            eventually(lambda: values(registry)[settled] == 2)
    found = values(registry)
    assert found["publish_total", "t", "ok"] == 1
    assert found["published_messages_total", "t"] == 2
    assert found["published_bytes_total", "t"] == 3
    assert found["publish_duration_seconds_count", "t"] == 1
    assert found["messages_received_total", "t", "c"] == 2
    assert found["handler_duration_seconds_count", "t", "c"] == 2
    assert found["message_age_seconds_count", "t", "c"] == 2
    assert found["message_attempts_bucket", "t", "c", "1.0"] == 2
    assert found["pool_connections", node, "idle"] == 0
    assert found["lookup_duration_seconds_count", cluster.lookupds[0].name] >= 1
    assert found["lookup_errors_total", cluster.lookupds[0].name] == 0
    assert found[("lookup_last_success_timestamp_seconds",)] > 1.7e9


def test_counters_survive_the_client_and_gauges_end_with_it(registry):
    metrics = PrometheusMetrics(registry)
    total, gauge = ("messages_received_total", "t", "c"), ("in_flight", "t", "c")
    first = Client(
        Figure("messages_received_total", ("t", "c"), 3), Figure("in_flight", ("t", "c"), 2)
    )
    second = Client(
        Figure("messages_received_total", ("t", "c"), 4), Figure("in_flight", ("t", "c"), 1)
    )
    metrics.watch(first)
    metrics.watch(second)
    found = values(registry)
    assert (found[total], found[gauge]) == (7, 3)
    assert values(registry)[total] == 7
    first.told[0] = Figure("messages_received_total", ("t", "c"), 5)
    metrics.unwatch(first)
    found = values(registry)
    assert (found[total], found[gauge]) == (9, 1)
    del second
    gc.collect()
    found = values(registry)
    assert (found[total], found[gauge]) == (9, 0)


def test_a_child_does_not_speak_for_its_parent(registry):
    metrics = PrometheusMetrics(registry)
    client = Client(Figure("in_flight", ("t", "c"), 2))
    metrics.watch(client)
    assert values(registry)["in_flight", "t", "c"] == 2
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, json.dumps(values(registry)["in_flight", "t", "c"]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert json.load(told) == 0
    os.waitpid(child, 0)


def test_buckets_can_be_chosen(registry):
    metrics = PrometheusMetrics(registry, buckets={"pool_wait_seconds": (0.5, 1.0)})
    metrics.pool_waited(0.7)
    found = values(registry)
    buckets = {
        key[1]: value for key, value in found.items() if key[0] == "pool_wait_seconds_bucket"
    }
    assert buckets == {"0.5": 0, "1.0": 1, "+Inf": 1}


def test_wrong_buckets_and_a_second_one_are_refused(registry):
    with pytest.raises(ValueError, match="'in_flight' is no histogram; there are publish_duration"):
        PrometheusMetrics(registry, buckets={"in_flight": (1.0,)})
    PrometheusMetrics(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        PrometheusMetrics(registry)


SEVERAL = """
import os, sys
from prometheus_client import CollectorRegistry, multiprocess
import nsqsmart
from nsqsmart.contrib.prometheus import PrometheusMetrics
from nsqsmart.embedded import Cluster

nsqsmart.metrics.use(PrometheusMetrics())
with Cluster() as cluster:
    cluster.create_topic("t")
    cluster.create_channel("t", "c")
    children = []
    for number in range(2):
        child = os.fork()
        if not child:
            producer = nsqsmart.Producer(cluster.url)
            producer.publish("t", b"x")
            producer.close()
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    for family in registry.collect():
        for sample in family.samples:
            if sample.name in ("nsqsmart_publish_total", "nsqsmart_pool_connections"):
                print(sample.name, sample.labels.get("state", ""), sample.value)
"""


def test_workers_of_a_prefork_server_are_summed(tmp_path):
    environ = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SEVERAL],
        env=environ,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert "nsqsmart_publish_total  2.0" in run.stdout.splitlines(), run.stdout + run.stderr


def test_without_the_package_it_says_what_to_install():
    code = "import sys; sys.modules['prometheus_client'] = None; import nsqsmart.contrib.prometheus"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'nsqsmart[prometheus]'" in run.stderr
