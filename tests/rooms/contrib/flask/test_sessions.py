"""publish_after_commit: a commit of an SQLAlchemy session sends, a rollback drops."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import sqlalchemy
from flask import Flask
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import nsqsmart
from nsqsmart.contrib.flask import NSQ, publish_failed
from nsqsmart.contrib.shared.delivering import Counts
from nsqsmart.embedded import Cluster
from nsqsmart.errors import ConfigError

nsq = NSQ()


@pytest.fixture
def app() -> Iterator[Flask]:
    made = Flask("shop")
    made.config["TESTING"] = True
    nsq.init_app(made)
    with made.app_context():
        yield made


@pytest.fixture
def runtime() -> Iterator[sqlalchemy.RunningConsumer]:
    made = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.StaticPool)
    with made.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE orders (number INTEGER)"))
    yield made
    made.dispose()


@pytest.fixture
def session(app: Flask, runtime: sqlalchemy.RunningConsumer) -> Iterator[Session]:
    with Session(runtime) as made:
        yield made


def order(session: Session, number: int) -> None:
    session.execute(sqlalchemy.text("INSERT INTO orders VALUES (:number)"), {"number": number})
    nsq.publish_after_commit(session, "orders", b"%d" % number, key="a")


def published() -> list[int]:
    return [int(each) for each in nsq.outbox.bodies("orders")]


def test_it_waits_for_the_commit(session):
    order(session, 1)
    order(session, 2)
    assert published() == []
    session.commit()
    assert published() == [1, 2]
    assert nsq.counts() == Counts(2, 0)
    session.commit()
    assert published() == [1, 2]


def test_a_rollback_drops_it(session):
    order(session, 1)
    session.rollback()
    order(session, 2)
    session.commit()
    assert published() == [2]


def test_closing_without_a_commit_drops_it(session, runtime):
    order(session, 1)
    session.close()
    order(session, 2)
    session.commit()
    assert published() == [2]


def test_savepoints(session):
    order(session, 1)
    with session.begin_nested():
        order(session, 2)
        with session.begin_nested() as inner:
            order(session, 3)
            inner.rollback()
        with session.begin_nested():
            order(session, 4)
    with session.begin_nested() as outer:
        with session.begin_nested():
            order(session, 5)
        order(session, 6)
        outer.rollback()
    assert published() == []
    order(session, 7)
    session.commit()
    assert published() == [1, 2, 4, 7]


def test_a_savepoint_that_was_kept_goes_with_the_whole(session):
    with session.begin_nested():
        order(session, 1)
    session.rollback()
    session.commit()
    assert published() == []


def test_before_the_transaction_has_begun(session):
    nsq.publish_after_commit(session, "orders", b"1")
    session.execute(sqlalchemy.text("SELECT 1"))
    session.commit()
    assert published() == [1]
    nsq.publish_after_commit(session, "orders", b"2")
    with session.begin():
        pass
    assert published() == [1, 2]
    nsq.publish_after_commit(session, "orders", b"3")
    session.execute(sqlalchemy.text("SELECT 1"))
    session.rollback()
    session.commit()
    assert published() == [1, 2]


@pytest.mark.parametrize("end", [Session.rollback, Session.close])
def test_what_ends_no_transaction_drops_nothing(session, end):
    nsq.publish_after_commit(session, "orders", b"1")
    end(session)
    assert published() == []
    session.commit()
    assert published() == [1]
    with session.begin():
        nsq.publish_after_commit(session, "orders", b"2")
        end(session)
    session.commit()
    assert published() == [1]


def test_the_session_of_flask_sqlalchemy_is_a_scoped_one(app, runtime):
    scoped = scoped_session(sessionmaker(runtime))
    order(scoped, 1)
    scoped.remove()
    order(scoped, 2)
    scoped.commit()
    scoped.remove()
    assert published() == [2]


def test_two_sessions_do_not_mix(session, runtime):
    with Session(runtime) as other:
        nsq.publish_after_commit(session, "orders", b"1")
        nsq.publish_after_commit(other, "orders", b"2")
        other.commit()
        assert published() == [2]


def test_the_body_is_what_it_was(session):
    body = bytearray(b"1")
    nsq.publish_after_commit(session, "orders", body)
    body[:] = b"2"
    session.commit()
    assert published() == [1]


@pytest.mark.parametrize(
    ("given", "error"), [(("orders", "text"), TypeError), (("bad topic", b"x"), ConfigError)]
)
def test_a_mistake_is_told_at_once(session, given, error):
    with pytest.raises(error):
        nsq.publish_after_commit(session, *given)


def test_a_failure_is_logged_counted_and_signalled(app, session, caplog):
    app.config["NSQSMART_URL"] = "nsq://127.0.0.1:1"
    app.config["NSQSMART_OPTIONS"] = {"publish_timeout": 0.2}
    heard = []

    def fail(sender, **told):
        raise ValueError("oops")

    def listen(sender, **told):
        heard.append((sender, told))

    with publish_failed.connected_to(fail), publish_failed.connected_to(listen):
        nsq.publish_after_commit(session, "orders", b"secret", key="customer-7")
        session.commit()
    ((sender, told),) = heard
    assert sender is app
    assert (told["topic"], told["body"], told["arguments"]) == (
        "orders",
        b"secret",
        {"key": "customer-7"},
    )
    assert isinstance(told["error"], nsqsmart.NsqError)
    assert nsq.counts().failed == 1
    (record,) = [each for each in caplog.records if hasattr(each, "nsq_topic")]
    assert record.levelno == logging.ERROR
    assert (record.nsq_topic, record.nsq_key, record.nsq_size) == ("orders", "customer-7", 6)
    assert "secret" not in record.getMessage()


def test_what_ends_the_process_in_the_middle_leaves_a_record(app, session, monkeypatch):
    heard = []

    def listen(sender, **told):
        heard.append(told["body"])

    def end(*_arguments, **_named):
        raise SystemExit(1)

    monkeypatch.setattr(type(nsq.producer), "publish", end)
    order(session, 1)
    order(session, 2)
    with publish_failed.connected_to(listen), pytest.raises(SystemExit):
        session.commit()
    assert heard == [b"1", b"2"]


def test_a_commit_is_one_command_for_each_partition(app, session):
    with Cluster(nsqds=2, lookupds=1) as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.create_channel("orders", "ch")
        app.config["NSQSMART_URL"] = cluster.url
        for number in range(100):
            nsq.publish_after_commit(session, "orders", b"%d" % number, key=f"c{number}")
        session.commit()
        assert len(cluster.log.of("MPUB", "orders")) == 2
        found = [int(each.body) for part in range(2) for each in cluster.stored("orders", part)]
        assert sorted(found) == list(range(100))
        nsq.close()
