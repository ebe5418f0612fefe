"""Fixtures for the tests of applications; pytest finds them once nsqsmart is installed.

pytest loads it in every test run where nsqsmart is installed, so it imports nothing slow before a
test asks for a fixture.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from nsqsmart import Consumer, Producer
    from nsqsmart.embedded import Cluster
    from nsqsmart.testing.mischief import Mischief
    from nsqsmart.testing.recording import Outbox

CHANNEL: Final = "test"
"""The channel that every topic of a test has."""

_MARKER = (
    "nsq(partitions=1, replicas=1, ordered=False, extend_support=False): how nsq_topic is made"
)
_TOPIC_OPTIONS = ("partitions", "replicas", "ordered", "extend_support")
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]+")
_LONGEST = 48
_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Let ``--strict-markers`` know of ours."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture(scope="session")
def nsq_cluster_options() -> Mapping[str, Any]:
    """What nsq_cluster is made with; write a fixture of this name to choose.

    A dict of options of :class:`nsqsmart.embedded.Cluster`, as ``{"dialect": "original"}``.
    """
    return {}


@pytest.fixture(scope="session")
def nsq_cluster(nsq_cluster_options: Mapping[str, Any]) -> Iterator[Cluster]:
    """A cluster in this process, for all tests: two nsqds and an nsqlookupd unless options differ.

    Its address is ``nsq_cluster.url``.
    """
    from nsqsmart.embedded import Cluster

    options: dict[str, Any] = {"nsqds": 2, "lookupds": 1} | dict(nsq_cluster_options)
    with Cluster(**options) as cluster:
        yield cluster


@pytest.fixture
def nsq_topic(request: pytest.FixtureRequest, nsq_cluster: Cluster) -> str:
    """The name of a topic of this test alone, with the channel ``test``.

    ``@pytest.mark.nsq(partitions=4, ordered=True)`` says what it is like.
    """
    shape = _shape(request.node)
    name = _NO_NAME.sub("-", request.node.name).strip("-")[:_LONGEST]
    topic = f"{name}-{next(_numbers)}"
    nsq_cluster.create_topic(topic, **shape)
    nsq_cluster.create_channel(topic, CHANNEL)
    return topic


def _shape(node: pytest.Item) -> dict[str, Any]:
    shape: dict[str, Any] = {}
    # The nearest one last: it decides.
    for mark in reversed(list(node.iter_markers("nsq"))):
        if mark.args:
            raise pytest.UsageError("@pytest.mark.nsq takes names: nsq(partitions=4)")
        for name, value in mark.kwargs.items():
            if name not in _TOPIC_OPTIONS:
                near = difflib.get_close_matches(name, _TOPIC_OPTIONS, n=1)
                hint = f": did you mean {near[0]}?" if near else ""
                raise pytest.UsageError(f"@pytest.mark.nsq knows no {name!r}{hint}")
            shape[name] = value
    return shape


@pytest.fixture
def nsq_producer(nsq_cluster: Cluster) -> Iterator[Producer]:
    """A producer for nsq_cluster, which gives up after 10 seconds."""
    from nsqsmart import Producer

    with Producer(nsq_cluster.url, publish_timeout=10) as producer:
        yield producer


@pytest.fixture
def nsq_consumer_factory(
    nsq_cluster: Cluster, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Consumer]]:
    """``factory(handler, topic=None, channel="test", **options)`` returns a started consumer.

    Default topic: that of nsq_topic. Without a handler messages are pulled. Leaders that move are
    found quickly. Everything is closed when the test has ended.
    """
    from nsqsmart import Consumer

    made: list[Consumer] = []

    def factory(
        handler: Callable[..., object] | None = None,
        topic: str | None = None,
        channel: str = CHANNEL,
        **options: Any,
    ) -> Consumer:
        name = request.getfixturevalue("nsq_topic") if topic is None else topic
        usual: dict[str, Any] = {
            "address": nsq_cluster.url,
            "close_timeout": 5,
            "lookupd_poll_interval": 0.5,
            "lookupd_min_refresh_interval": 0.05,
        }
        consumer = Consumer(name, channel, handler, **(usual | options))
        made.append(consumer)
        return consumer.start()

    yield factory
    for consumer in made:
        consumer.close()


@pytest.fixture
def nsq_outbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Outbox]:
    """A list of what was published, without a server and without a socket.

    ``nsqsmart.publish`` and the integrations that record in tests put their messages here; give
    your own code ``RecordingProducer(nsq_outbox)``. Empty at the beginning of each test.
    """
    import nsqsmart
    from nsqsmart.testing.recording import RecordingProducer, outbox

    outbox.clear()
    with RecordingProducer(outbox) as producer:
        monkeypatch.setattr(nsqsmart, "publish", producer.publish)
        yield outbox
    outbox.clear()


@pytest.fixture
def nsq_faults(nsq_cluster: Cluster) -> Iterator[Mischief]:
    """Faults of nsq_cluster by name: ``nsq_faults("PUB", "reply", "E_PUB_FAILED")``.

    When the test has ended no fault is left, and every server runs again.
    """
    from nsqsmart.testing.mischief import Mischief

    mischief = Mischief(nsq_cluster)
    yield mischief
    mischief.mend()
