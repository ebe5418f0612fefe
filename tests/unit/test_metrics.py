"""The interface that adapters fill in, and its table."""

from __future__ import annotations

import inspect
import re

import pytest

import nsqsmart
from nsqsmart import metrics
from nsqsmart.client.shared.errors import NoLeader
from nsqsmart.client.shared.metrics import Meter, make_meter
from nsqsmart.config import ProducerConfig
from nsqsmart.errors import (
    ConfigError,
    ConnectError,
    ConnectionLost,
    DiscoveryError,
    PoolTimeout,
    ProtocolError,
    ResponseTimeout,
    ServerError,
)
from nsqsmart.metrics import INSTRUMENTS, REASONS, Metrics


@pytest.fixture(autouse=True)
def _unused():
    yield
    metrics.use(None)


class Reasons(Metrics):
    def __init__(self):
        self.reasons = []

    def retried(self, topic, reason):
        self.reasons.append(reason)


def test_every_method_can_be_called_and_does_nothing():
    nothing = Metrics()
    samples = {"str": "x", "Result": "ok", "int": 1, "float": 1.0, "bool": True, "Source": None}
    for name, method in inspect.getmembers(nothing, inspect.ismethod):
        rows = inspect.signature(method).parameters.values()
        given = {row.name: samples[row.annotation] for row in rows}
        assert method(**given) is None, name


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_names_and_units_are_as_prometheus_wants_them(name):
    row = INSTRUMENTS[name]
    assert re.fullmatch(r"[a-z_]+", name)
    assert name.endswith("_total") == (row.kind == "counter")
    assert bool(row.bounds) == (row.kind == "histogram")
    assert list(row.bounds) == sorted(set(row.bounds))
    assert row.help.endswith(".")
    assert not re.search(r"_(ms|us|ns|kb|mb|minutes)\b", name)


def test_use_is_for_every_client_that_is_given_none():
    one, other = Metrics(), Metrics()
    assert make_meter(ProducerConfig()) is None
    metrics.use(one)
    assert make_meter(ProducerConfig())._metrics is one
    assert make_meter(ProducerConfig(metrics=other))._metrics is other
    metrics.use(None)
    assert make_meter(ProducerConfig()) is None


def test_anything_else_is_refused():
    with pytest.raises(TypeError, match="not 'prometheus'"):
        metrics.use("prometheus")
    with pytest.raises(ConfigError, match=r"metrics='on' .* a nsqsmart.metrics.Metrics"):
        nsqsmart.Producer("nsq://127.0.0.1:4150", metrics="on")
    with pytest.raises(ConfigError, match="can only be given as a keyword"):
        nsqsmart.Producer("nsq://127.0.0.1:4150?metrics=on")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ServerError("E_FAILED_ON_NOT_LEADER"), "E_FAILED_ON_NOT_LEADER"),
        (ServerError("customer-7"), "other"),
        (ResponseTimeout("x"), "timeout"),
        (ConnectError("x"), "connect"),
        (ConnectionLost("x"), "closed"),
        (PoolTimeout("x"), "pool"),
        (DiscoveryError("x"), "lookup"),
        (NoLeader("x"), "no_leader"),
        (ProtocolError("x"), "protocol"),
    ],
)
def test_a_reason_is_a_code_or_one_of_a_few_words(error, reason):
    reasons = Reasons()
    Meter(reasons).failed("t", error)
    assert reasons.reasons == [reason]
    assert reason.startswith("E_") or reason in REASONS


def test_a_server_cannot_make_labels_without_end():
    reasons = Reasons()
    meter = Meter(reasons)
    for number in range(1000):
        word = "".join(chr(ord("A") + int(digit)) for digit in str(number))
        meter.failed("t", ServerError(f"E_{word}"))
    assert len(set(reasons.reasons)) <= 51


def test_metrics_that_fail_are_logged_once_and_harm_nobody(caplog):
    class Broken(Metrics):
        def pool_waited(self, seconds):
            raise ZeroDivisionError

    meter = Meter(Broken())
    for _ in range(3):
        meter.pool_waited(1.0)
    (record,) = caplog.records
    assert "Broken" in record.getMessage()
