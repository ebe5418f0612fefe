"""The blocking, thread-safe Producer."""

from __future__ import annotations

import os
import random
from time import monotonic
from types import TracebackType
from typing import Self

from nsqsmart.client.directory import Directory
from nsqsmart.client.endpoints import open_endpoint, prepare_endpoint
from nsqsmart.client.publishing import Publication, Publisher
from nsqsmart.client.receipt import Receipt
from nsqsmart.config import ProducerConfig, resolve
from nsqsmart.errors import ClientClosed, ConfigError
from nsqsmart.names import Address, check_partition, check_topic
from nsqsmart.net.connection import Connection, open_connection
from nsqsmart.net.handshake import make_greeting
from nsqsmart.net.lookup import WRITE
from nsqsmart.net.pool import ConnectionPool
from nsqsmart.policy.routing import Key, check_key

_MAX_TRACE_ID = (1 << 64) - 1
_MAX_KNOWN_TOPICS = 10_000


class Producer:
    """Publishes to NSQ with plain blocking calls; share one between threads, and over a fork.

    It finds the leader of the message's partition, keeps connections in a pool, and when a leader
    has moved looks up again and retries, all inside one deadline. It starts no thread: publish()
    runs wholly in the caller's.

    Args:
        address: ``nsq+lookupd://host:4161,...``, ``nsq://host:4150,...``,
            ``nsq+embedded://NAME``; with TLS to nsqd ``nsqs+lookupd://`` and ``nsqs://``.
            Default: the environment variable ``NSQSMART_URL``.
        config: a :class:`~nsqsmart.config.ProducerConfig` instead of the defaults.
        **options: any option by its name, as ``publish_timeout=5`` (seconds) or ``"250ms"``.

    Raises:
        ConfigError: an address or option cannot be used. Nothing is dialled here.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        config: ProducerConfig | None = None,
        **options: object,
    ) -> None:
        self._endpoint, self._config = resolve(ProducerConfig, address, options, config=config)
        prepare_endpoint(self._endpoint)
        self._greeting = make_greeting(self._config)
        self._publish_timeout = self._config.publish_timeout
        self._trace = self._config.trace
        self._closed = False
        self._known_topics: set[str] = set()
        # Keyed by PID: a child of a fork starts with nothing, and inherits no lock that is held.
        self._by_process: dict[int, Publisher] = {}

    def publish(
        self,
        topic: str,
        body: bytes,
        *,
        key: Key | None = None,
        partition: int | None = None,
        trace: bool | None = None,
        trace_id: int | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Store *body* in *topic*; return once an nsqd has said OK to it.

        Args:
            topic: 1 to 64 characters of letters, digits, ``.``, ``_`` and ``-``.
            body: the message, not empty.
            key: messages of one key go to one partition, in order; str or int (bytes too with
                ``sharding="murmur3"`` or ``"crc32"``). Redesigned clusters only.
            partition: this very partition instead. Redesigned clusters only.
            trace: have the servers trace the message; default: the option ``trace``.
            trace_id: 0 to 2**64 - 1, implies *trace*; default: a random one.
            timeout: seconds for everything, retries included; default ``publish_timeout``.

        Raises:
            TypeError, ConfigError: an argument cannot be used; nothing was sent.
            PublishError: see its subclasses; ``outcome`` says whether it may be stored.
            ClientClosed: after :meth:`close`.
        """
        if topic not in self._known_topics:
            self._know(topic)
        if type(body) is not bytes or not body:
            body = _check_body(body)
        limit = self._publish_timeout if timeout is None else _check_timeout(timeout)
        publisher = self._publisher()
        plain = key is None and partition is None and trace_id is None
        if plain and not (self._trace if trace is None else trace):
            return publisher.publish_plain(topic, body, monotonic() + limit)
        publication = self._describe(topic, body, key, partition, trace, trace_id)
        return publisher.publish(publication, monotonic() + limit)

    def close(self, timeout: float | None = None) -> None:
        """Refuse new calls, let those under way finish for *timeout* seconds, end the sockets.

        Default: ``close_timeout``. Calls still waiting then raise PublishFailed. May be called
        twice, and from any thread.
        """
        self._closed = True
        publisher = self._by_process.pop(os.getpid(), None)
        self._drop_inherited()
        if publisher:
            limit = self._config.close_timeout if timeout is None else _check_timeout(timeout)
            publisher.pool.wait_for_loans(monotonic() + limit)
            publisher.turns.close()
            publisher.pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Producer {self._endpoint}{' closed' if self._closed else ''}>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Producer cannot be pickled: make it inside the function that uses it")

    def _publisher(self) -> Publisher:
        publisher = self._by_process.get(os.getpid())
        if publisher is not None and not self._closed:
            return publisher
        if self._closed:
            raise ClientClosed("the Producer was closed")
        self._drop_inherited()
        endpoint = open_endpoint(self._endpoint)
        directory = Directory(endpoint, self._config, WRITE)
        idle = self._config.pool_idle_timeout or 1.5 * (self._config.heartbeat_interval or 30.0)
        pool = ConnectionPool(self._open, self._config.pool_size, idle)
        made = Publisher(self._config, directory, pool)
        # setdefault: two threads may get here at once, and no lock is there to be inherited held.
        return self._by_process.setdefault(os.getpid(), made)

    def _drop_inherited(self) -> None:
        for process in [pid for pid in self._by_process if pid != os.getpid()]:
            inherited = self._by_process.pop(process, None)
            if inherited:
                inherited.pool.drop()

    def _open(self, address: Address, deadline: float) -> Connection:
        return open_connection(address, self._greeting, deadline)

    def _describe(
        self,
        topic: str,
        body: bytes,
        key: Key | None,
        partition: int | None,
        trace: bool | None,  # noqa: FBT001 - as publish() has it, which takes it by name
        trace_id: int | None,
    ) -> Publication:
        """What is to be published with key, partition or trace, checked."""
        if key is not None:
            check_key(key)
            if partition is not None:
                raise TypeError("give key or partition, not both")
        elif partition is not None:
            check_partition(partition)
        must_trace = trace_id is not None or trace is True
        if trace_id is not None:
            _check_trace_id(trace_id)
        elif must_trace or (trace is None and self._trace):
            trace_id = random.getrandbits(63) or 1
        return Publication(topic, body, key, partition, trace_id, must_trace)

    def _know(self, topic: str) -> None:
        """Check a topic's name once."""
        check_topic(topic)
        if len(self._known_topics) < _MAX_KNOWN_TOPICS:
            self._known_topics.add(topic)


def _check_body(body: object) -> bytes:
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError(
            f"body must be bytes, not {type(body).__name__}; "
            "encode text with .encode(), objects with json.dumps(...).encode()"
        )
    if not len(body):
        raise ConfigError("body is empty: nsqd refuses empty messages")
    return bytes(body)


def _check_trace_id(trace_id: object) -> None:
    if isinstance(trace_id, bool) or not isinstance(trace_id, int):
        raise TypeError(f"trace_id must be an int, not {type(trace_id).__name__}")
    if not 0 <= trace_id <= _MAX_TRACE_ID:
        raise ConfigError(f"trace_id {trace_id} does not fit in 64 unsigned bits")


def _check_timeout(timeout: object) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be seconds, not {type(timeout).__name__}")
    if not 0 <= timeout < float("inf"):
        raise ConfigError(f"timeout {timeout!r} must be 0 or more seconds, and finite")
    return float(timeout)
