"""Spans of publish calls, and the context that goes along with the messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Any, Final
from weakref import WeakKeyDictionary

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Span, SpanKind, StatusCode

from nsqsmart import Pending, Producer, Receipt
from nsqsmart.contrib.opentelemetry import conventions as words
from nsqsmart.contrib.opentelemetry.telemetry import Telemetry
from nsqsmart.errors import NotSupported, PublishError

Arguments = dict[str, Any]

HEADER: Final = "header"
TRACE_ID: Final = "trace_id"
NOTHING: Final = "off"

_LOW_64 = (1 << 64) - 1


class TracedPublishing:
    """Takes the place of a Producer's methods; *originals* are those, by name."""

    def __init__(self, telemetry: Telemetry, originals: dict[str, Callable[..., Any]]) -> None:
        self._telemetry = telemetry
        self._originals = originals
        self._learned: WeakKeyDictionary[Producer, dict[str, str]] = WeakKeyDictionary()

    def publish(self, producer: Producer, topic: str, body: bytes, **arguments: Any) -> Receipt:
        """One message."""
        return self._publish("publish", producer, topic, body, arguments)

    def publish_many(
        self, producer: Producer, topic: str, bodies: Iterable[bytes], **arguments: Any
    ) -> Receipt:
        """A batch: one span, whose context goes with every message."""
        if not isinstance(bodies, (list, tuple, str, bytes)):
            bodies = list(bodies)
        return self._publish("publish_many", producer, topic, bodies, arguments)

    def publish_async(
        self, producer: Producer, topic: str, body: bytes, **arguments: Any
    ) -> Pending:
        """One message, whose span ends when it is settled."""
        sending = _PublishSpan(self._telemetry, topic, {words.BODY_SIZE: _size(body)}, 1)
        sending.begin()
        try:
            # It cannot be tried twice.
            mode = self._telemetry.propagate
            way = (self._known(producer, topic) or NOTHING) if mode == "auto" else mode
            given = self._adorned(way, arguments)
            pending: Pending = self._originals["publish_async"](producer, topic, body, **given)
        except BaseException as error:
            sending.detach()
            sending.failed(error)
            raise
        sending.detach()
        pending.add_done_callback(lambda done: _settle(sending, done))
        return pending

    def _publish(
        self, name: str, producer: Producer, topic: str, given: Any, arguments: Arguments
    ) -> Receipt:
        """Call the method *name* in a span, with the context in the best form the topic takes."""
        batch, mode = name == "publish_many", self._telemetry.propagate
        count = len(given) if batch else 1
        more: words.Attributes = (
            {words.BATCH_COUNT: count} if batch else {words.BODY_SIZE: _size(given)}
        )
        sending = _PublishSpan(self._telemetry, topic, more, count)
        tried: Arguments | None = None
        with sending:
            for way in self._ways(producer, topic) if mode == "auto" else iter((mode,)):
                adorned = self._adorned(way, arguments, batch=batch)
                if adorned == tried:
                    continue
                try:
                    receipt: Receipt = self._originals[name](producer, topic, given, **adorned)
                except NotSupported:
                    # Before anything was sent. Without our doing it is the caller's to know.
                    if mode != "auto" or adorned == arguments:
                        raise
                    tried = adorned
                else:
                    sending.stored(receipt)
                    return receipt
        raise AssertionError("the last way leaves the arguments as they are")

    def _ways(self, producer: Producer, topic: str) -> Iterator[str]:
        """What "auto" tries: the best, unless the topic is known; then what was learned meanwhile.

        And then nothing, which every server takes.
        """
        # What is spooled is not tried again: it may carry nothing that the topic does not take.
        yield self._known(producer, topic) or (NOTHING if producer.has_spool else HEADER)
        self._learned[producer].pop(topic, None)
        yield self._known(producer, topic) or TRACE_ID
        yield NOTHING

    def _known(self, producer: Producer, topic: str) -> str | None:
        """The best form that *topic* takes; None until it was looked up."""
        learned = self._learned.setdefault(producer, {})
        if topic not in learned:
            seen = producer.stats().get("topics", {}).get(topic)
            if seen is None or seen["state"] != "found":
                return None
            plain = TRACE_ID if seen["redesigned"] else NOTHING
            learned[topic] = HEADER if seen["extended"] else plain
        return learned[topic]

    def _adorned(self, way: str, arguments: Arguments, *, batch: bool = False) -> Arguments:
        """*arguments*, with the current context in the form *way*."""
        given = dict(arguments)
        if way == HEADER:
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            if carrier:
                given["headers"] = carrier | dict(given.get("headers") or {})
        asked = way == TRACE_ID or (way == HEADER and given.get("trace"))
        here = trace.get_current_span().get_span_context()
        free = given.get("trace_id") is None and given.get("trace") is not False
        if asked and free and not batch and here.is_valid and here.trace_flags.sampled:
            # 0 means untraced there.
            given["trace_id"] = (here.trace_id & _LOW_64) or 1
        return given


class _PublishSpan:
    """One span and its measurements."""

    def __init__(
        self, telemetry: Telemetry, topic: str, more: words.Attributes, count: int
    ) -> None:
        self._telemetry = telemetry
        self._topic = topic
        self._more = more | words.topic_attributes(topic)
        self._count = count
        self._labels = words.operation("publish", "send", topic)

    def begin(self) -> None:
        """The span is the current one from now on."""
        self._began = monotonic()
        self._span: Span = self._telemetry.tracer.start_span(
            f"publish {self._topic}", kind=SpanKind.PRODUCER, attributes=self._labels | self._more
        )
        self._token = context.attach(trace.set_span_in_context(self._span))

    def detach(self) -> None:
        """The span is the current one no more."""
        context.detach(self._token)

    def stored(self, receipt: Receipt) -> None:
        """The servers have it."""
        self._span.set_attributes(words.of_receipt(receipt))
        self._labels |= words.server(receipt.nsqd)
        self._end()

    def failed(self, error: BaseException) -> None:
        """The publish has failed."""
        kind = words.error_type(error)
        self._labels[words.ERROR_TYPE] = kind
        self._span.set_attribute(words.ERROR_TYPE, kind)
        self._span.record_exception(error)
        self._span.set_status(StatusCode.ERROR, kind)
        self._end()

    def _end(self) -> None:
        self._span.end()
        telemetry = self._telemetry
        telemetry.operation_duration.record(monotonic() - self._began, self._labels)
        telemetry.sent.add(self._count, self._labels)

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.detach()
        if error is not None:
            self.failed(error)


def _settle(sending: _PublishSpan, pending: Pending) -> None:
    try:
        receipt = pending.result(0)
    except PublishError as error:
        sending.failed(error)
    else:
        sending.stored(receipt)


def _size(body: object) -> int:
    # Anything else is refused by the method itself.
    return len(body) if isinstance(body, bytes) else 0
