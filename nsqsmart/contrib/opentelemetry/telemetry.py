"""Tracer, meters and settings of one :func:`~nsqsmart.contrib.opentelemetry.instrument`."""

from __future__ import annotations

from typing import Literal, get_args

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from nsqsmart import __version__
from nsqsmart.contrib.opentelemetry import conventions as words
from nsqsmart.errors import ConfigError

Propagate = Literal["auto", "header", "trace_id", "off"]
Parent = Literal["link", "producer"]

_NAME = "nsqsmart"


class Telemetry:
    """Where spans and measurements go; ``active`` until it is taken away again."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        propagate: Propagate,
        parent: Parent,
    ) -> None:
        _check("propagate", propagate, get_args(Propagate))
        _check("parent", parent, get_args(Parent))
        self.propagate = propagate
        self.parent = parent
        self.active = True
        self.tracer = trace.get_tracer(_NAME, __version__, tracer_provider, words.SCHEMA)
        meter = metrics.get_meter(_NAME, __version__, meter_provider, words.SCHEMA)
        self.operation_duration = meter.create_histogram(
            words.OPERATION_DURATION,
            "s",
            "Duration of a publish, with its retries.",
            explicit_bucket_boundaries_advisory=words.BOUNDS,
        )
        self.process_duration = meter.create_histogram(
            words.PROCESS_DURATION,
            "s",
            "Duration of a run of a handler.",
            explicit_bucket_boundaries_advisory=words.BOUNDS,
        )
        self.sent = meter.create_counter(words.SENT, "{message}", "Messages given to an nsqd.")
        self.consumed = meter.create_counter(
            words.CONSUMED, "{message}", "Messages given to a handler."
        )


def _check(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(
            f"{name}={value!r} is not permitted: it must be one of {', '.join(choices)}"
        )
