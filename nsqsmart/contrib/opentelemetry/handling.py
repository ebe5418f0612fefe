"""Spans of handlers, linked to those of the publishers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from opentelemetry import context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, StatusCode

from nsqsmart import Message, Requeue
from nsqsmart.contrib.opentelemetry import conventions as words
from nsqsmart.contrib.opentelemetry.telemetry import Telemetry

Handler = Callable[..., object]


def traced(telemetry: Telemetry, handler: Handler | None, *, batch: bool) -> Handler | None:
    """*handler*, in a span; its result and exceptions are passed on.

    A *batch* has one span, with a link for each message.
    """
    if handler is None or not _is_plain(handler):
        return handler  # and let the Consumer say why not

    @functools.wraps(handler, updated=())
    def handle(given: Any) -> object:
        if not telemetry.active:
            return handler(given)
        messages = list(given) if batch else [given]
        more: words.Attributes = {words.BATCH_COUNT: len(messages)}
        if not batch:
            more = words.of_message(given)
        return _run(telemetry, messages, more, lambda: handler(given))

    return handle


def _is_plain(handler: object) -> bool:
    both = (handler, getattr(handler, "__call__", None))  # noqa: B004 - an object that is callable
    unfit = any(
        inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in both
    )
    return callable(handler) and not unfit


def _run(
    telemetry: Telemetry,
    messages: Sequence[Message],
    more: words.Attributes,
    handler: Callable[[], object],
) -> object:
    first, began = messages[0], monotonic()
    labels = words.operation("process", "process", first.topic)
    labels[words.SUBSCRIPTION] = first.channel
    telemetry.consumed.add(len(messages), labels)
    waited = {words.QUEUE_WAIT: (began - first.received_at) * 1000}
    origins = [_origin(message) for message in messages]
    with telemetry.tracer.start_as_current_span(
        f"process {first.topic}",
        context=_parent(telemetry, origins),
        kind=SpanKind.CONSUMER,
        attributes=labels | more | waited | words.topic_attributes(first.topic),
        links=_links(messages, origins),
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            result = handler()
        except BaseException as error:
            _note_raised(span, labels, error)
            raise
        else:
            _note_returned(span, result)
            return result
        finally:
            telemetry.process_duration.record(monotonic() - began, labels)


def _note_raised(span: trace.Span, labels: words.Attributes, error: BaseException) -> None:
    span.add_event("requeue", _delay_of(error))
    if isinstance(error, Requeue):
        return  # the handler asked for it: not a failure
    kind = labels[words.ERROR_TYPE] = words.error_type(error)
    span.set_attribute(words.ERROR_TYPE, kind)
    span.record_exception(error)
    span.set_status(StatusCode.ERROR, str(kind))


def _note_returned(span: trace.Span, result: object) -> None:
    if result is None or result is True:
        span.add_event("finish")
    elif result is False or isinstance(result, Requeue):
        span.add_event("requeue", _delay_of(result))


def _delay_of(result: object) -> words.Attributes:
    if isinstance(result, Requeue) and result.delay is not None:
        return {words.REQUEUE_DELAY: result.delay * 1000}
    return {}


def _origin(message: Message) -> Context | None:
    """The context that travelled in the header. A trace id alone is no parent: it is no span."""
    carrier = {name: text for name, text in message.headers.items() if isinstance(text, str)}
    if not carrier:
        return None
    found = propagate.extract(carrier, context=Context())
    return found if trace.get_current_span(found).get_span_context().is_valid else None


def _parent(telemetry: Telemetry, origins: Sequence[Context | None]) -> Context:
    if telemetry.parent == "producer" and len(origins) == 1 and origins[0] is not None:
        return origins[0]
    return context.get_current()


def _links(messages: Sequence[Message], origins: Sequence[Context | None]) -> list[Link]:
    links = []
    for message, origin in zip(messages, origins, strict=True):
        if origin is not None:
            about: dict[str, Any] = {words.MESSAGE_ID: words.message_id(message)}
            links.append(Link(trace.get_current_span(origin).get_span_context(), about))
    return links
