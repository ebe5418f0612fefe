"""A Flask app that publishes with keys, and servers that keep no order: who tells it."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskCliRunner

from nsqsmart import Producer, PullSubscription
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


def test_options_win_over_the_query_of_the_url():
    nsq = NSQ()
    url = "nsq://127.0.0.1:1?publish_timeout=60&pool_size=7"
    app = make_app(nsq, NSQSMART_URL=url, NSQSMART_OPTIONS={"publish_timeout": 0.2})
    with app.app_context():
        config = nsq.producer._config
        nsq.close()
    assert (config.publish_timeout, config.pool_size) == (0.2, 7)


def test_tail_asks_for_no_more_than_it_prints():
    with Cluster(dialect="original") as cluster:
        with Producer(cluster.url) as producer:
            producer.publish_many("orders", [b"%d" % number for number in range(50)])
        app = make_app(NSQ(), NSQSMART_URL=f"{cluster.url}?max_in_flight=50")
        arguments = ["nsq", "tail", "orders", "--channel", "c", "-n", "2"]
        assert FlaskCliRunner(app).invoke(args=arguments).exit_code == 0
        with PullSubscription(cluster.url, "orders", "c") as pulled:
            pulled.set_rdy(48)
            seen = []
            while len(seen) < 48:
                seen += pulled.pull(48, 5)
        # Two in flight, and two in the places of those that were printed.
        assert sum(message.attempts > 1 for message in seen) <= 4
