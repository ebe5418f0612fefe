"""NSQ in Flask apps: state per app, publishing, handlers, the command."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pytest
from flask import Blueprint, Flask, current_app, g, has_app_context
from flask.testing import FlaskCliRunner

import nsqsmart
from nsqsmart.contrib.flask import NSQ
from nsqsmart.contrib.flask.commands import around
from nsqsmart.embedded import Cluster
from nsqsmart.errors import ConfigError
from nsqsmart.testing.recording import Published, RecordingProducer, assert_published

URL = "nsq://127.0.0.1:1"
FAST = {"backoff_multiplier": 0.01, "default_requeue_delay": 0.05}


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch):
    monkeypatch.setattr("nsqsmart.client.consuming.run._LOOK_EVERY", 0.02)


@pytest.fixture
def make_app() -> Callable[..., Flask]:
    def make(nsq: NSQ, **config: object) -> Flask:
        app = Flask("shop")
        app.config.update(config)
        nsq.init_app(app)
        return app

    return make


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nsqds=2, lookupds=1) as made:
        made.create_topic("orders", partitions=2)
        made.create_channel("orders", "billing")
        yield made


def publish(cluster: Cluster, *bodies: bytes) -> None:
    with nsqsmart.Producer(cluster.url) as producer:
        for each in bodies:
            producer.publish("orders", each)


def command(app: Flask, *arguments: str):
    return FlaskCliRunner(app).invoke(args=["nsq", *arguments])


# --------------------------------------------------------------------------------- app and state


def test_tests_without_an_address_record(make_app):
    nsq = NSQ()
    app = make_app(nsq)
    app.config["TESTING"] = True  # behind init_app, as fixtures do
    with app.app_context():
        nsq.publish("orders", b"1", key="a")
        nsq.publish_json("orders", {"id": 2})
        nsq.publish_many("orders", [b"3", b"4"])
        assert nsq.outbox[0] == Published("orders", b"1", "a")
        assert_published(nsq.outbox, "orders", contains={"id": 2})
        assert nsq.outbox.bodies("orders") == [b"1", b'{"id":2}', b"3", b"4"]
        with pytest.raises(TypeError, match="body must be bytes"):
            nsq.publish("orders", "text")


def test_tests_with_an_address_send(make_app, cluster):
    nsq = NSQ()
    app = make_app(nsq, TESTING=True, NSQSMART_URL=cluster.url)
    with app.app_context():
        nsq.publish("orders", b"1")
        assert nsq.outbox == []
        nsq.close()
        nsq.publish("orders", b"2")
        nsq.close()
    assert sorted(each.body for each in cluster.stored("orders")) == [b"1", b"2"]


def test_the_environment_is_no_address_for_tests(make_app, monkeypatch):
    monkeypatch.setenv("NSQSMART_URL", URL)
    nsq = NSQ()
    with make_app(nsq, TESTING=True).app_context():
        assert isinstance(nsq.producer, RecordingProducer)
    with make_app(nsq).app_context():
        assert type(nsq.producer) is nsqsmart.Producer


def test_two_apps_have_nothing_in_common(make_app):
    nsq = NSQ()
    one, other = (make_app(nsq, TESTING=True) for _ in range(2))
    with one.app_context():
        nsq.publish("orders", b"one")
        first = nsq.producer
    with other.app_context():
        assert nsq.outbox == []
        assert nsq.producer is not first
    with one.app_context():
        assert nsq.outbox.bodies("orders") == [b"one"]
        assert nsq.producer is first


def test_an_app_is_registered_once(make_app):
    nsq = NSQ()
    app = make_app(nsq)
    with pytest.raises(RuntimeError, match="registered with this Flask app before"):
        nsq.init_app(app)
    with pytest.raises(RuntimeError, match="registered with this Flask app before"):
        NSQ(app)


def test_without_a_registered_app_it_says_so(make_app):
    nsq = NSQ()
    with pytest.raises(RuntimeError, match="application context"):
        nsq.publish("orders", b"1")
    with make_app(NSQ()).app_context(), pytest.raises(RuntimeError, match="nsq.init_app"):
        nsq.publish("orders", b"1")


def test_the_one_line_way():
    app = Flask("shop")
    app.config["TESTING"] = True
    nsq = NSQ(app)
    with app.app_context():
        nsq.publish("orders", b"1")
        assert len(nsq.outbox) == 1


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"NSQSMART_OPTIONS": {"publish_timeot": 3}}, r"did you mean publish_timeout\?"),
        ({"NSQSMART_OPTIONS": {"max_in_flite": 3}}, "app.config.'NSQSMART_OPTIONS'"),
        ({"NSQSMART_OPTIONS": {"workers": "many"}}, "workers='many' from app.config"),
        ({"NSQSMART_OPTIONS": [1]}, "must be a dict, not list"),
        ({"NSQSMART_OPTION": {}}, "did you mean NSQSMART_OPTIONS"),
        ({"NSQSMART_PUBLISH_TIMEOUT": 1}, "put 'publish_timeout' into NSQSMART_OPTIONS"),
        ({"NSQSMART_URL": "h:4150"}, "an address begins with one of"),
        ({"NSQSMART_URL": 7}, "must be a str, not int"),
    ],
)
def test_wrong_settings_are_refused_at_once(make_app, config, words):
    with pytest.raises(ConfigError, match=words):
        make_app(NSQ(), **config)


def test_without_any_address_the_first_use_says_so(make_app):
    nsq = NSQ()
    with make_app(nsq).app_context(), pytest.raises(ConfigError, match="no address"):
        nsq.publish("orders", b"1")


def test_init_app_opens_nothing(make_app, cluster):
    threads = set(threading.enumerate())
    cluster.log.clear()
    make_app(NSQ(), NSQSMART_URL=cluster.url)
    assert list(cluster.log) == []
    # One of an earlier test may end meanwhile.
    assert set(threading.enumerate()) <= threads


def test_options_and_the_patience_of_a_request(make_app):
    nsq = NSQ()

    def patience(**options):
        return (
            make_app(nsq, NSQSMART_URL=URL, NSQSMART_OPTIONS=options)
            .extensions["nsqsmart"]
            .settings.target()[1]
            .publish_timeout
        )

    assert patience() == 5.0
    assert patience(publish_timeout="7s", max_in_flight=3) == 7.0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_of_a_fork_goes_on(make_app, cluster):
    nsq = NSQ()
    with make_app(nsq, NSQSMART_URL=cluster.url).app_context():
        nsq.publish("orders", b"parent", partition=0)
        process = os.fork()
        if process == 0:
            code = 1
            try:
                nsq.publish("orders", b"child", partition=0)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
        nsq.publish("orders", b"parent again", partition=0)
        nsq.close()
    bodies = [each.body for each in cluster.stored("orders", 0)]
    assert bodies == [b"parent", b"child", b"parent again"]


# ------------------------------------------------------------------------------------- handlers


def test_each_message_has_an_app_context_of_its_own(make_app, cluster):
    nsq = NSQ()
    app = make_app(nsq, NSQSMART_URL=cluster.url, NSQSMART_OPTIONS=FAST)
    seen, torn_down = [], []

    @app.teardown_appcontext
    def tear_down(error):
        torn_down.append(error)

    @nsq.handler("orders", "billing", workers=1)
    def bill(message):
        assert not hasattr(g, "message")
        g.message = message
        seen.append((current_app.name, message.body))
        if message.attempts == 1 and message.body == b"2":
            raise ValueError("oops")

    publish(cluster, b"1", b"2")
    result = command(app, "consume", "--max-messages", "3")
    assert result.exit_code == 0, result.output
    assert sorted(seen) == [("shop", b"1"), ("shop", b"2"), ("shop", b"2")]
    assert [str(each) for each in torn_down if each] == ["oops"]
    assert "orders/billing: 2 finished, 1 requeued, 1 failed" in result.output


def test_a_handler_may_publish(make_app, cluster):
    nsq = NSQ()
    app = make_app(nsq, NSQSMART_URL=cluster.url, NSQSMART_OPTIONS=FAST)

    @nsq.handler("orders", "billing")
    def bill(message):
        if message.body == b"1":
            nsq.publish("orders", b"2")

    publish(cluster, b"1")
    assert command(app, "consume", "--max-messages", "2").exit_code == 0
    with app.app_context():
        nsq.close()
    assert sorted(each.body for each in cluster.stored("orders")) == [b"1", b"2"]


def test_a_batch_handler(make_app, cluster):
    nsq, seen = NSQ(), []
    app = make_app(nsq, NSQSMART_URL=cluster.url)

    @nsq.handler("orders", "billing", batch=True)
    def bill(messages):
        assert has_app_context()
        seen.extend(each.body for each in messages)

    publish(cluster, b"1", b"2")
    assert command(app, "consume", "--max-messages", "2", "--exit-when-idle", "20").exit_code == 0
    assert sorted(seen) == [b"1", b"2"]


def test_handlers_of_a_blueprint_count_where_it_is_registered(make_app):
    nsq, blueprint = NSQ(), Blueprint("bills", "shop")

    @nsq.blueprint_handler(blueprint, "orders", "billing")
    def bill(message): ...

    @nsq.handler("orders", "mail")
    def mail(message): ...

    with_it, without = make_app(nsq), make_app(nsq)
    with_it.register_blueprint(blueprint, name="other name")  # behind init_app, as usual
    assert [each.channel for each in nsq.handlers_of(with_it)] == ["billing", "mail"]
    assert [each.channel for each in nsq.handlers_of(without)] == ["mail"]


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (("orders", "billing"), {"worker": 2}, "did you mean workers.*from the handler .*bill"),
        (("bad topic", "billing"), {}, "bad topic"),
    ],
)
def test_a_handler_with_a_mistake_is_refused(given, options, words):
    def bill(message): ...

    with pytest.raises(ConfigError, match=words):
        NSQ().handler(*given, **options)(bill)


def test_a_handler_that_raises_does_so_through_the_context(make_app):
    nsq = NSQ()
    app = make_app(nsq)

    @nsq.handler("orders", "billing")
    def bill(message):
        raise nsqsmart.Requeue(1.0)

    with pytest.raises(nsqsmart.Requeue):
        around(app, nsq.handlers_of(app)[0])(None)
    assert not has_app_context()


# -------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("channels", "arguments", "code", "words"),
    [
        ([], (), 1, "no handler is declared"),
        (["billing", "billing"], (), 1, "both consume topic 'orders' on channel 'billing'"),
        (["billing"], ("--topic", "bills"), 1, "no handler has topic bills: there are orders/"),
        (["billing"], ("--lost-after", "0.3"), 75, "no nsqd was reached for 0.3 s"),
        (["billing"], ("--nonsense",), 2, "No such option"),
    ],
)
def test_consume_has_exit_codes(make_app, channels, arguments, code, words):
    nsq = NSQ()
    app = make_app(nsq, NSQSMART_URL=URL)
    for channel in channels:
        nsq.handler("orders", channel)(lambda message: None)
    result = command(app, "consume", *arguments)
    assert (result.exit_code, words in result.output) == (code, True), result.output


def test_ping(make_app, cluster):
    result = command(make_app(NSQ(), NSQSMART_URL=cluster.url), "ping")
    assert result.exit_code == 0
    assert result.output.count(" answered in ") == 2
    result = command(make_app(NSQ(), NSQSMART_URL=URL), "ping", "--timeout", "0.5")
    assert (result.exit_code, "no nsqd answers" in result.output) == (75, True)
    result = command(make_app(NSQ()), "ping")
    assert (result.exit_code, "no address" in result.output) == (1, True)


def test_tail_prints_bodies(make_app, cluster):
    app = make_app(NSQ(), NSQSMART_URL=cluster.url)
    publish(cluster, b"first", b"\xffsecond")
    result = command(app, "tail", "orders", "--channel", "billing", "-n", "2")
    assert result.exit_code == 0, result.output
    assert sorted(result.stdout_bytes.splitlines()) == [b"first", b"\xffsecond"]


def test_tail_without_a_channel_leaves_none(make_app):
    with Cluster(dialect="original") as original:
        app = make_app(NSQ(), NSQSMART_URL=original.url)
        done = threading.Event()

        def feed():
            with nsqsmart.Producer(original.url) as producer:
                while not done.wait(0.05):
                    producer.publish("orders", b"x")

        thread = threading.Thread(target=feed)
        thread.start()
        result = command(app, "tail", "orders", "-n", "1")
        done.set()
        thread.join()
    assert (result.exit_code, result.output) == (0, "x\n")


def test_tail_of_a_wrong_topic(make_app):
    result = command(make_app(NSQ(), NSQSMART_URL=URL), "tail", "bad topic")
    assert (result.exit_code, "bad topic" in result.output) == (1, True)
