"""Spans, links, propagation and measurements, on embedded clusters of both dialects."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from importlib.metadata import entry_points

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

import nsqsmart
from nsqsmart.contrib.opentelemetry import NsqsmartInstrumentor, instrument, uninstrument
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import ConfigError, NotSupported
from tests.helpers import eventually

ORIGINAL = {"dialect": "original"}
PLAIN = {"dialect": "redesigned"}
EXTENDED = {"dialect": "redesigned", "extend_support": True}
KINDS = pytest.mark.parametrize(
    "kind", [ORIGINAL, PLAIN, EXTENDED], ids=["original", "plain", "ext"]
)


class Telemetry:
    """Providers, and what they were given."""

    def __init__(self):
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])

    def on(self, **options):
        instrument(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    def spans(self, beginning=""):
        found = self._exporter.get_finished_spans()
        return [span for span in found if span.name.startswith(beginning)]

    def points(self, name):
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def telemetry():
    yield Telemetry()
    uninstrument()


@pytest.fixture
def cluster(kind):
    options = dict(kind)
    extended = options.pop("extend_support", False)
    with Cluster(**options) as cluster:
        cluster.create_topic("t", **({"extend_support": True} if extended else {}))
        cluster.create_channel("t", "c")
        yield cluster


def consume(cluster, count, handler=lambda message: None, **options):
    """Handle so many deliveries, and return the messages."""
    seen = []

    def handle(message):
        seen.append(message)
        return handler(message)

    with nsqsmart.Consumer("t", "c", handle, address=cluster.url, **options) as consumer:
        eventually(lambda: len(seen) == count)
        eventually(lambda: sum((consumer.stats().finished, consumer.stats().requeued)) >= count)
    return seen


@KINDS
def test_a_publish_and_its_handler_are_spans_with_the_conventional_words(cluster, kind, telemetry):
    telemetry.on()
    with nsqsmart.Producer(cluster.url) as producer:
        receipt = producer.publish("t", b"12345")
    (message,) = consume(cluster, 1)
    (sent,) = telemetry.spans("publish")
    assert (sent.name, sent.kind) == ("publish t", SpanKind.PRODUCER)
    host, port = receipt.nsqd.split(":")
    common = {"messaging.system": "nsq", "messaging.destination.name": "t"}
    where = common | {"server.address": host, "server.port": int(port)}
    assert sent.attributes.items() >= where.items()
    assert sent.attributes["messaging.operation.name"] == "publish"
    assert sent.attributes["messaging.operation.type"] == "send"
    assert sent.attributes["messaging.message.body.size"] == 5
    (handled,) = telemetry.spans("process")
    assert (handled.name, handled.kind) == ("process t", SpanKind.CONSUMER)
    assert handled.attributes.items() >= where.items()
    assert handled.attributes["messaging.destination.subscription.name"] == "c"
    assert handled.attributes["messaging.nsq.message.attempts"] == 1
    assert handled.attributes["messaging.nsq.queue_wait_ms"] >= 0
    assert [event.name for event in handled.events] == ["finish"]
    text = message.id.decode() if kind is ORIGINAL else message.id.hex()
    assert handled.attributes["messaging.message.id"] == text
    partition = None if kind is ORIGINAL else "0"
    assert sent.attributes.get("messaging.destination.partition.id") == partition
    assert handled.attributes.get("messaging.destination.partition.id") == partition
    assert handled.parent is None


@KINDS
def test_auto_carries_the_context_as_well_as_the_topic_takes_it(cluster, kind, telemetry):
    telemetry.on()
    with nsqsmart.Producer(cluster.url) as producer:
        producer.publish("t", b"1")
        producer.publish("t", b"2")
        producer.publish_many("t", [b"3", b"4"])
        producer.publish_async("t", b"5").result(10)
    messages = consume(cluster, 5)
    sent = {span.context.span_id: span for span in telemetry.spans("publish")}
    assert len(sent) == 4
    assert {span.status.status_code for span in sent.values()} == {StatusCode.UNSET}
    links = [[link.context.span_id for link in span.links] for span in telemetry.spans("process")]
    low = {span.context.trace_id & (2**64 - 1) for span in sent.values()}
    if kind is EXTENDED:
        assert all(len(one) == 1 and one[0] in sent for one in links)
        assert all("traceparent" in message.headers for message in messages)
        assert {message.trace_id for message in messages} == {0}
    else:
        assert links == [[]] * 5
    if kind is PLAIN:
        by_body = {message.body: message.trace_id for message in messages}
        assert {by_body[b"1"], by_body[b"2"], by_body[b"5"]} <= low
        assert by_body[b"3"] == by_body[b"4"] == 0
        ids = {span.attributes.get("messaging.nsq.trace_id") for span in telemetry.spans("process")}
        assert ids == {str(number) for number in by_body.values() if number} | {None}


@pytest.mark.parametrize("kind", [ORIGINAL], ids=["original"])
def test_what_a_topic_takes_is_found_out_once(cluster, telemetry):
    results = Counter()

    class Results(nsqsmart.Metrics):
        def published(self, topic, result, *facts):
            results[result] += 1

    telemetry.on()
    with nsqsmart.Producer(cluster.url, metrics=Results()) as producer:
        for _ in range(5):
            producer.publish("t", b"x")
    # The first one was tried before anything was known of the topic.
    assert results == {"ok": 5, "error": 1}


@pytest.mark.parametrize("kind", [EXTENDED], ids=["ext"])
def test_own_headers_trace_ids_and_baggage_go_along(cluster, telemetry):
    telemetry.on()
    token = context.attach(baggage.set_baggage("customer", "7"))
    with nsqsmart.Producer(cluster.url) as producer:
        producer.publish("t", b"1", headers={"mine": "x", "tracestate": "own=1"})
        producer.publish("t", b"2", trace=True)
        producer.publish("t", b"3", trace_id=99)
    context.detach(token)
    found = {message.body: message for message in consume(cluster, 3)}
    assert found[b"1"].headers["mine"] == "x"
    assert found[b"1"].headers["tracestate"] == "own=1"
    assert found[b"1"].headers["baggage"] == "customer=7"
    spans = {
        span.attributes.get("messaging.nsq.trace_id"): span for span in telemetry.spans("publish")
    }
    assert found[b"2"].trace_id == spans[str(found[b"2"].trace_id)].context.trace_id & (2**64 - 1)
    assert found[b"3"].trace_id == 99


@pytest.mark.parametrize("kind", [PLAIN], ids=["plain"])
def test_what_was_asked_for_by_name_is_not_left_out(cluster, telemetry):
    telemetry.on(propagate="header")
    with nsqsmart.Producer(cluster.url) as producer:
        with pytest.raises(NotSupported):
            producer.publish("t", b"x")
        (span,) = telemetry.spans("publish")
        assert (span.status.status_code, span.attributes["error.type"]) == (
            StatusCode.ERROR,
            "NotSupported",
        )
        telemetry.on(propagate="off")
        producer.publish("t", b"x")
        telemetry.on(propagate="auto")
        with pytest.raises(NotSupported):
            producer.publish("t", b"x", headers={"a": "b"})
    (stored,) = cluster.stored("t")
    assert stored.trace_id == 0


@pytest.mark.parametrize("kind", [PLAIN], ids=["plain"])
def test_a_publish_that_is_not_sampled_asks_for_no_trace(cluster, telemetry):
    telemetry.tracers = TracerProvider(sampler=ALWAYS_OFF)
    telemetry.on(propagate="trace_id")
    with nsqsmart.Producer(cluster.url) as producer:
        producer.publish("t", b"x")
    assert [each.trace_id for each in cluster.stored("t")] == [0]


@pytest.mark.parametrize("kind", [EXTENDED], ids=["ext"])
def test_the_handler_can_be_a_child_of_the_publisher(cluster, telemetry):
    telemetry.on(parent="producer")
    with nsqsmart.Producer(cluster.url) as producer:
        producer.publish("t", b"x")
    inside = []
    consume(cluster, 1, lambda message: inside.append(trace.get_current_span().get_span_context()))
    (sent,), (handled,) = telemetry.spans("publish"), telemetry.spans("process")
    assert handled.parent.span_id == sent.context.span_id
    assert handled.context.trace_id == sent.context.trace_id
    assert [each.span_id for each in inside] == [handled.context.span_id]


@pytest.mark.parametrize("kind", [PLAIN], ids=["plain"])
def test_failures_requeues_and_batches(cluster, telemetry):
    telemetry.on()
    with nsqsmart.Producer(cluster.url) as producer:
        producer.publish("t", b"raise")

        def handle(message):
            if message.attempts == 1:
                raise ValueError("secret of the body")
            if message.attempts == 2:
                return nsqsmart.Requeue(0, backoff=False)
            return None

        consume(cluster, 3, handle, default_requeue_delay=0, max_backoff_duration=0)
        spans = telemetry.spans("process")
        assert [span.status.status_code for span in spans] == [
            StatusCode.ERROR,
            StatusCode.UNSET,
            StatusCode.UNSET,
        ]
        assert spans[0].attributes["error.type"] == "ValueError"
        events = [[event.name for event in span.events] for span in spans]
        assert events == [["requeue", "exception"], ["requeue"], ["finish"]]
        assert spans[1].events[0].attributes["messaging.nsq.requeue.delay_ms"] == 0
        producer.publish_many("t", [b"1", b"2"])
        got = []
        with nsqsmart.Consumer("t", "c", batch_handler=got.extend, address=cluster.url):
            eventually(lambda: len(got) == 2)
            eventually(lambda: len(telemetry.spans("process")) > 3)
    counts = [
        span.attributes["messaging.batch.message_count"] for span in telemetry.spans("process")[3:]
    ]
    assert sum(counts) == 2


@pytest.mark.parametrize("kind", [PLAIN], ids=["plain"])
def test_measurements_have_the_conventional_names(cluster, telemetry):
    telemetry.on()
    with nsqsmart.Producer(cluster.url) as producer:
        producer.publish("t", b"x")
        producer.publish_many("t", [b"x", b"y"])
        cluster.faults.add(faults.on("PUB_TRACE").reply("E_BAD_MESSAGE"))
        with pytest.raises(nsqsmart.PublishError):
            producer.publish("t", b"z")
    consume(cluster, 3)
    sent = Counter()
    for point in telemetry.points("messaging.client.sent.messages"):
        assert point.attributes["messaging.operation.name"] == "publish"
        sent[point.attributes.get("error.type")] += point.value
    assert sent == {None: 3, "E_BAD_MESSAGE": 1}
    durations = telemetry.points("messaging.client.operation.duration")
    assert sum(point.count for point in durations) == 3
    (consumed,) = telemetry.points("messaging.client.consumed.messages")
    (process,) = telemetry.points("messaging.process.duration")
    assert (consumed.value, process.count) == (3, 3)
    assert consumed.attributes["messaging.destination.subscription.name"] == "c"
    assert process.explicit_bounds[0] == 0.005


@pytest.mark.parametrize("kind", [PLAIN], ids=["plain"])
def test_everything_is_as_before_afterwards(cluster, telemetry):
    before = (nsqsmart.Producer.publish, nsqsmart.Consumer.__init__)
    telemetry.on()
    assert nsqsmart.Producer.publish is not before[0]
    assert nsqsmart.Producer.publish.__doc__ == before[0].__doc__
    seen = []
    with nsqsmart.Consumer("t", "c", lambda m: seen.append(m.body), address=cluster.url):
        uninstrument()
        assert (nsqsmart.Producer.publish, nsqsmart.Consumer.__init__) == before
        with nsqsmart.Producer(cluster.url) as producer:
            producer.publish("t", b"x")
        eventually(lambda: seen)
    assert telemetry.spans() == []


@pytest.mark.parametrize("kind", [PLAIN], ids=["plain"])
def test_what_is_spooled_has_a_span_and_carries_nothing_that_its_topic_may_refuse(
    cluster, telemetry, tmp_path
):
    telemetry.on()
    nowhere = "nsq+lookupd://127.0.0.1:1"
    with nsqsmart.Producer(nowhere, spool=tmp_path / "spool", publish_timeout=0.05) as producer:
        assert producer.publish("t", b"x").spooled
        assert producer.publish_async("t", b"y").result(10).spooled
    assert "server.address" not in telemetry.spans("publish")[0].attributes
    with nsqsmart.Producer(cluster.url, spool=tmp_path / "spool") as producer:
        assert [(each.sent, each.refused) for each in producer.flush_spool(10)] == [(2, 0)]


@pytest.mark.parametrize("kind", [PLAIN], ids=["plain"])
def test_a_settled_message_of_publish_async_ends_its_span(cluster, telemetry):
    telemetry.on()
    with nsqsmart.Producer(cluster.url) as producer:
        producer.publish("t", b"x")
        cluster.faults.add(faults.on("PUB_TRACE").reply("E_BAD_MESSAGE"))
        pending = producer.publish_async("t", b"x")
        assert not trace.get_current_span().get_span_context().is_valid
        with pytest.raises(nsqsmart.PublishError):
            pending.result(10)
        eventually(lambda: len(telemetry.spans("publish")) == 2)
        with pytest.raises(TypeError):
            producer.publish_async("t", "text")
    kinds = [span.attributes.get("error.type") for span in telemetry.spans("publish")]
    assert kinds == [None, "E_BAD_MESSAGE", "TypeError"]


def test_handlers_that_a_consumer_refuses_are_refused_all_the_same(telemetry):
    telemetry.on()

    async def handler(message):
        pass

    with pytest.raises(TypeError, match="async function"):
        nsqsmart.Consumer("t", "c", handler, address="nsq://127.0.0.1:4150")
    with pytest.raises(TypeError, match="must be callable, not int"):
        nsqsmart.Consumer("t", "c", 5, address="nsq://127.0.0.1:4150")


def test_wrong_words_are_refused_and_change_nothing(telemetry):
    before = nsqsmart.Producer.publish
    with pytest.raises(ConfigError, match="propagate='headers' .* auto, header, trace_id, off"):
        telemetry.on(propagate="headers")
    with pytest.raises(ConfigError, match="parent='child'"):
        telemetry.on(parent="child")
    assert nsqsmart.Producer.publish is before


def test_zero_code_instrumentation_finds_it(telemetry):
    (found,) = entry_points(group="opentelemetry_instrumentor", name="nsqsmart")
    assert found.load() is NsqsmartInstrumentor
    before = nsqsmart.Producer.publish
    NsqsmartInstrumentor().instrument(skip_dep_check=True, tracer_provider=telemetry.tracers)
    assert nsqsmart.Producer.publish is not before
    NsqsmartInstrumentor().uninstrument()
    assert nsqsmart.Producer.publish is before


def test_without_the_package_it_says_what_to_install():
    code = (
        "import sys; sys.modules['opentelemetry.metrics'] = None\n"
        "import nsqsmart.contrib.opentelemetry"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'nsqsmart[opentelemetry]'" in run.stderr
