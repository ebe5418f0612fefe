"""A Flask app that publishes with keys, and servers that keep no order: who tells it."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskCliRunner

from nsqsmart.contrib.flask import NSQ
from nsqsmart.embedded import Cluster
from nsqsmart.errors import ConfigError, OrderingNotSupported


def make_app(nsq, **config):
    app = Flask("shop")
    app.config.update(config)
    nsq.init_app(app)
    return app


def ping(app):
    return FlaskCliRunner(app).invoke(args=["nsq", "ping"])


def test_ping_says_which_servers_these_are_and_what_does_not_fit():
    with Cluster(dialect="original") as original:
        nsq = NSQ()
        app = make_app(nsq, NSQSMART_URL=original.url)
        result = ping(app)
        assert result.exit_code == 0
        assert "original NSQ: key=, partition=" in result.output
        nsq.handler("orders", "billing", ordered=True)(print)
        result = ping(app)
        assert (result.exit_code, "has no ordered topics" in result.output) == (1, True)
        result = ping(make_app(NSQ(), NSQSMART_URL=original.url, NSQSMART_DIALECT="redesigned"))
        assert (result.exit_code, "say redesigned" in result.output) == (1, True)


def test_in_tests_it_refuses_what_the_servers_would():
    nsq = NSQ()
    app = make_app(nsq, TESTING=True, NSQSMART_DIALECT="original")
    with app.app_context(), pytest.raises(OrderingNotSupported):
        nsq.publish("orders", b"1", key="k")
    loose = {"NSQSMART_DIALECT": "original", "NSQSMART_OPTIONS": {"ordering": "best-effort"}}
    app = make_app(nsq, TESTING=True, **loose)
    with app.app_context():
        nsq.publish("orders", b"1", key="k")
        assert [each.key for each in nsq.outbox] == ["k"]


def test_a_dialect_that_there_is_none_of():
    with pytest.raises(ConfigError, match="none of original, redesigned"):
        make_app(NSQ(), NSQSMART_DIALECT="old")
