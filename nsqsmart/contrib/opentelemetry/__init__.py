"""OpenTelemetry: spans and measurements of publishing and handling, and the context in between.

::

    from nsqsmart.contrib.opentelemetry import instrument

    instrument()        # before consumers are made

Zero-code instrumentation finds :class:`NsqsmartInstrumentor` by its entry point. Needs the extra:
``pip install 'nsqsmart[opentelemetry]'``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

try:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
except ImportError as error:
    raise ImportError(
        "nsqsmart.contrib.opentelemetry needs opentelemetry-api: "
        "pip install 'nsqsmart[opentelemetry]'"
    ) from error

from nsqsmart import Consumer, Producer
from nsqsmart.contrib.opentelemetry.handling import traced
from nsqsmart.contrib.opentelemetry.publishing import TracedPublishing
from nsqsmart.contrib.opentelemetry.telemetry import Parent, Propagate, Telemetry

__all__ = ["NsqsmartInstrumentor", "instrument", "uninstrument"]

_PUBLISHING = ("publish", "publish_many", "publish_async")
_OWN: dict[tuple[type, str], Callable[..., Any]] = {
    **{(Producer, name): getattr(Producer, name) for name in _PUBLISHING},
    (Consumer, "__init__"): Consumer.__init__,
}
"""The methods as they are without us."""

_active: list[Telemetry] = []


def instrument(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    propagate: Propagate = "auto",
    parent: Parent = "link",
) -> None:
    """Have every Producer make spans from now on, and every Consumer that is made from now on.

    A second call takes the place of the first.

    Args:
        tracer_provider, meter_provider: default: the global ones.
        propagate: how the context travels. "header": in the JSON header of the message; a topic
            without ``extend_support`` raises NotSupported. "trace_id": its low 64 bits as the
            message's trace id; an original nsqd raises NotSupported. "auto": the first of these
            that the topic takes, or neither; no publish fails for it. "off": not at all.
        parent: "link": the span of a handler is linked to that of the publisher, as the conventions
            want it. "producer": it is its child.

    Raises:
        ConfigError: *propagate* or *parent* is another word.
    """
    telemetry = Telemetry(tracer_provider, meter_provider, propagate, parent)
    uninstrument()
    originals = {name: method for (_, name), method in _OWN.items()}
    publishing = TracedPublishing(telemetry, originals)
    places = {(Producer, name): getattr(publishing, name) for name in _PUBLISHING}
    for (owner, name), method in places.items():
        setattr(owner, name, _method(_OWN[owner, name], method))
    init = _OWN[Consumer, "__init__"]
    setattr(Consumer, "__init__", _method(init, _make_init(telemetry, init)))  # noqa: B010 - as above
    _active.append(telemetry)


def uninstrument() -> None:
    """Let everything be as it was; handlers of consumers that run make no more spans."""
    while _active:
        _active.pop().active = False
    for (owner, name), method in _OWN.items():
        setattr(owner, name, method)


def _method(original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    """*replacement*, as a method that looks like *original*."""

    @functools.wraps(original)
    def method(*arguments: Any, **named: Any) -> Any:
        return replacement(*arguments, **named)

    return method


def _make_init(telemetry: Telemetry, original: Callable[..., Any]) -> Callable[..., None]:
    def init(
        consumer: Consumer,
        topic: str,
        channel: str,
        handler: Callable[..., object] | None = None,
        **named: Any,
    ) -> None:
        if "batch_handler" in named:
            named["batch_handler"] = traced(telemetry, named["batch_handler"], batch=True)
        handler = traced(telemetry, handler, batch=False)
        original(consumer, topic, channel, handler, **named)

    return init


class NsqsmartInstrumentor:
    """What ``opentelemetry-instrument`` looks for: :func:`instrument` by another name."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """What must be installed."""
        return ("nsqsmart",)

    def instrument(self, **options: Any) -> None:
        """Call :func:`instrument` with those of *options* that it knows."""
        known = ("tracer_provider", "meter_provider", "propagate", "parent")
        instrument(**{name: options[name] for name in known if name in options})

    def uninstrument(self, **_options: Any) -> None:
        """Call :func:`uninstrument`."""
        uninstrument()
